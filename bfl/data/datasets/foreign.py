"""Images that a run's network has not been trained for: other data sets, or changed test images."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from bfl import randomness
from bfl.data.datasets import absolute_other, cached_dataset, source_and_location
from bfl.data.datasets.base import Dataset
from bfl.data.datasets.folder import Folder, read_unlabelled
from bfl.data.datasets.hub import NAMED
from bfl.data.datasets.reading import AS_STORED, Reading, match_shape
from bfl.data.images import Images, as_type
from bfl.errors import ConfigurationError, unknown_name

LINK = "+"  # between the words of ``ood-dataset``
NONE = "none"


def add_noise(images: Images, deviation: float = 64.0) -> Images:
    """Return images with Gaussian noise of a standard deviation, in levels of 0 to 255."""
    noise = randomness.generator(0, "foreign", "noised").normal(0.0, deviation, images.shape)
    return as_type(images + noise, images.dtype)


def _blur(images: Images, deviation: float) -> Images:
    from scipy.ndimage import gaussian_filter

    # Of the image's height, so that it is the same in images of any size.
    pixels = deviation / 32 * images.shape[1]
    sigma = (0, pixels, pixels, 0)
    return as_type(gaussian_filter(images.astype(np.float32), sigma, mode="nearest"), images.dtype)


def _lower_contrast(images: Images, factor: float) -> Images:
    mean = images.mean(axis=(1, 2), keepdims=True)
    return as_type(mean + factor * (images - mean), images.dtype)


def _rotate(images: Images, degrees: float) -> Images:
    from scipy.ndimage import rotate

    given = images.astype(np.float32)
    rotated = rotate(given, degrees, axes=(1, 2), reshape=False, order=1, mode="nearest")
    return as_type(rotated, images.dtype)


def _add_shot_noise(images: Images, photons: float) -> Images:
    counts = randomness.generator(0, "foreign", "shot").poisson(
        images.astype(np.float64) / 255.0 * photons
    )
    return as_type(counts / photons * 255.0, images.dtype)


def _add_impulses(images: Images, share: float) -> Images:
    drawn = randomness.generator(0, "foreign", "impulse").random(images.shape)
    salted = np.where(drawn < share / 2, 255, images)
    return np.asarray(np.where(drawn > 1 - share / 2, 0, salted), images.dtype)


def _brighten(images: Images, share: float) -> Images:
    # The value of hue, saturation and value: the greatest of a pixel's channels.
    value = images.max(axis=-1, keepdims=True).astype(np.float64)
    brighter = np.minimum(value + 255.0 * share, 255.0)
    changed = np.where(value > 0, images * (brighter / np.maximum(value, 1e-9)), brighter)
    return as_type(changed, images.dtype)


def _by_pillow(images: Images, change: Callable[[Any], Any]) -> Images:
    from PIL.Image import fromarray

    given = as_type(images, np.dtype(np.uint8))
    pictures = given.squeeze(-1) if given.shape[-1] == 1 else given
    found = np.stack([np.asarray(change(fromarray(picture))) for picture in pictures])
    return np.asarray(found.reshape(images.shape), images.dtype)


def _pixelate(images: Images, share: float) -> Images:
    from PIL.Image import Resampling

    height, width = images.shape[1:3]
    size = max(1, int(width * share)), max(1, int(height * share))
    return _by_pillow(
        images,
        lambda picture: picture.resize(size, Resampling.BOX).resize(
            (width, height), Resampling.NEAREST
        ),
    )


def _compress(images: Images, quality: float) -> Images:
    from PIL.Image import open as open_image

    def compress(picture: Any) -> Any:
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=int(quality))
        return open_image(stream)

    return _by_pillow(images, compress)


ROTATED = "rotated"
CHANGES: dict[str, Callable[[Images], Images]] = {
    ROTATED: lambda images: np.ascontiguousarray(np.rot90(images, axes=(1, 2))),
    "inverted": lambda images: 255 - images,
    "noised": add_noise,
}
"""Changes of the test images: a quarter turn, inverse grey levels and noise."""

CORRUPTIONS: dict[str, tuple[Callable[[Images, float], Images], tuple[float, ...]]] = {
    "noise": (lambda images, share: add_noise(images, 255 * share), (0.08, 0.12, 0.18, 0.26, 0.38)),
    "blur": (_blur, (1.5, 2.0, 2.5, 3.0, 4.0)),
    "contrast": (_lower_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "rotation": (_rotate, (15.0, 30.0, 45.0, 60.0, 75.0)),
    "shot": (_add_shot_noise, (60.0, 25.0, 12.0, 5.0, 3.0)),
    "impulse": (_add_impulses, (0.03, 0.06, 0.09, 0.17, 0.27)),
    "brightness": (_brighten, (0.1, 0.2, 0.3, 0.4, 0.5)),
    "pixelate": (_pixelate, (0.6, 0.5, 0.4, 0.3, 0.25)),
    "jpeg": (_compress, (25.0, 18.0, 15.0, 10.0, 7.0)),
}
"""Corruptions and their strengths: Gaussian noise, as a share of the range of pixels; a Gaussian
blur, in 1/32 of the height; the factor of the deviations from an image's mean; degrees; photons of
a white pixel; the share of values that become black or white; what is added to a pixel's value, as
a share of the range; the share of height and width that is left; the quality of JPEG.

Reference: Hendrycks and Dietterich (2019), "Benchmarking neural network robustness to common
corruptions and perturbations": all but blur and rotation are theirs, seven of their 15, with the
strengths of their ImageNet-C, contrast with those of CIFAR-10-C. Ovadia et al. (2019), "Can you
trust your model's uncertainty?", for rotations by 15 degrees more each time.
"""

STRENGTHS = range(1, 6)


@dataclass(frozen=True)
class ForeignImages:
    """Images (M, H, W, C) of one foreign source, in the test images' size and channels.

    Attributes:
        name: The stem of its word (``npz:a/b.npz`` is ``b``), with a number from the second on.
        near: Whether they are near the test images, such as the same objects seen otherwise.
        changed: Whether they are the test images, changed, in their order.
    """

    name: str
    near: bool
    images: Images
    changed: bool = False


def foreign_images(
    given: str, data_dir: str, dataset: Dataset, reading: Reading = AS_STORED
) -> Iterator[ForeignImages]:
    """Yield the images of each source of ``ood-dataset``, at most as many as test images.

    Of a folder they are all, in and below it: their classes do not matter.
    """
    height, width, channels = dataset.image_shape
    names: list[str] = []
    for word in words(given):
        near = is_near(word, dataset.name)
        stem = PurePath(word.rpartition(":")[2]).stem
        numbered = [stem, *(f"{stem}-{number}" for number in range(2, len(names) + 2))]
        name = next(each for each in numbered if each not in names)
        names.append(name)
        if word in CHANGES:
            if word == ROTATED and height != width:
                raise ConfigurationError(
                    f"ood-dataset has '{word}', and the images are {height} x {width}: a quarter "
                    "turn has another shape; allowed: square images"
                )
            yield ForeignImages(name, near, CHANGES[word](dataset.test_images), True)
            continue
        source, location = source_and_location(word)
        if isinstance(source, Folder):
            size = height if height == width else 0
            shape = replace(reading, image_size=size, image_channels=channels, image_fit="resize")
            found = source.find(location, Path(data_dir) if data_dir else None)
            _, images = read_unlabelled(found, shape)
        else:
            own = Reading(pixel_range=reading.pixel_range if source.takes_pixel_range else "")
            images = cached_dataset(word, data_dir, own).test_images[: len(dataset.test_images)]
        yield ForeignImages(name, near, match_shape(dataset, images, f"ood-dataset '{word}'"))


def is_near(word: str, dataset: str) -> bool:
    """Return whether a source of ``ood-dataset`` is near a run's data set.

    Rotated images are, and named data sets of the same kind, such as photographs.
    """
    if word in CHANGES:
        return word == ROTATED
    kinds = {each.name: each.kind for each in NAMED}
    return kinds.get(source_and_location(word)[0].name) == kinds.get(dataset, "")


def absolute_foreign(given: str, data_dir: str) -> str:
    """Return ``ood-dataset`` such that no folder matters."""
    beside = f"ood-dataset is '{given}'; allowed: {', '.join(CHANGES)} or a data set"
    found = [w if w in CHANGES else absolute_other(w, data_dir, beside) for w in words(given)]
    if len({*found}) < len(found):
        raise ConfigurationError(f"ood-dataset is '{given}', which has a source twice")
    return LINK.join(found)


def words(given: str) -> list[str]:
    """Return the sources that ``ood-dataset`` names, or the changes of ``corruptions``."""
    return [word.strip() for word in given.split(LINK) if word.strip()]


def corruption_names(given: str) -> list[str]:
    """Return the corruptions that the key ``corruptions`` names; none for 'none'."""
    names = words(given)
    if names == [NONE]:
        return []
    for place, name in enumerate(names):
        if name not in CORRUPTIONS:
            problem = unknown_name("corruption", name, (*CORRUPTIONS, NONE))
            raise ConfigurationError(f"corruptions is '{given}': {problem}")
        if name in names[:place]:
            raise ConfigurationError(f"corruptions is '{given}', which has '{name}' twice")
    return names


def corrupt(images: Images, name: str, strength: int) -> Images:
    """Return images [N, H, W, C] changed by one of ``CORRUPTIONS`` at one of ``STRENGTHS``."""
    change, levels = CORRUPTIONS[name]
    return change(images, levels[strength - 1])
