"""Images that a run's network has not been trained for: other data sets, or changed test images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath

import numpy as np

from bfl import randomness
from bfl.data.datasets import absolute_dataset, source_and_location, validate_dataset
from bfl.data.datasets.base import Dataset
from bfl.data.datasets.cache import cached_dataset
from bfl.data.datasets.reading import PIXEL_RANGE, Reading, like
from bfl.data.images import Images, as_type
from bfl.errors import ConfigurationError

LINK = "+"
"""The separator of the words of ``ood-dataset``."""

NOISE = 64.0
"""Standard deviation of the noise of ``noised`` images, in levels of 0 to 255."""


def noised(images: Images, deviation: float = NOISE) -> Images:
    """Return images with Gaussian noise of a standard deviation, in levels of 0 to 255."""
    noise = randomness.generator(0, "foreign", "noised").normal(0.0, deviation, images.shape)
    return as_type(images + noise, images.dtype)


CHANGES: dict[str, Callable[[Images], Images]] = {
    "rotated": lambda images: np.ascontiguousarray(np.rot90(images, axes=(1, 2))),
    "inverted": lambda images: 255 - images,
    "noised": noised,
}
"""Changes of the test images: a quarter turn, near; inverse grey levels and noise, far."""

NEAR = ("rotated",)


@dataclass(frozen=True)
class ForeignImages:
    """Images of one foreign source.

    Attributes:
        name: Its word; of a word with a colon, the stem of what stands last: ``npz:a/b.npz`` is
            ``b``. One that would be the second of its name has a number.
        near: Whether they are near the test images: of the same objects, seen otherwise.
        images: (M, H, W, C) in the size and channels of the test images.
        changed: Whether they are the test images, changed, in their order.
    """

    name: str
    near: bool
    images: Images
    changed: bool = False


def words(given: str) -> list[str]:
    """Return the sources that ``ood-dataset`` names."""
    return [word.strip() for word in given.split(LINK) if word.strip()]


def absolute_foreign(given: str, data_dir: str) -> str:
    """Return ``ood-dataset`` such that no folder matters.

    Raises:
        ConfigurationError: A source is neither a change nor a data set that is here, or it stands
            twice.
    """
    found = []
    for word in words(given):
        if word not in CHANGES:
            try:
                validate_dataset(word, data_dir)
            except ConfigurationError as error:
                raise ConfigurationError(
                    f"ood-dataset is '{given}': {error}; or a change of the test images: "
                    f"{', '.join(CHANGES)}"
                ) from error
            word = absolute_dataset(word, data_dir)[0]
        if word in found:
            raise ConfigurationError(f"ood-dataset is '{given}', which has '{word}' twice")
        found.append(word)
    return LINK.join(found)


def foreign_images(
    given: str, data_dir: str, dataset: Dataset, pixel_range: str = ""
) -> Iterator[ForeignImages]:
    """Yield the images of each source, at most as many as there are test images.

    Images of another size are resized; grey ones get three equal channels, and colours become
    their luminance.

    Args:
        given: ``ood-dataset``.
        data_dir: Where archives of named data sets lie.
        dataset: The run's data set, with the test images that are used.
        pixel_range: The run's, for data sets that read it.

    Raises:
        ConfigurationError: They cannot be had in the size and channels of the test images.
        DataError: A data set cannot be had.
    """
    height, width, _ = dataset.image_shape
    for name, word in zip(_names(words(given)), words(given), strict=True):
        if word in CHANGES:
            if word in NEAR and height != width:
                raise ConfigurationError(
                    f"ood-dataset has '{word}', and the images are {height} x {width}: a quarter "
                    "turn has another shape; allowed: square images"
                )
            yield ForeignImages(name, word in NEAR, CHANGES[word](dataset.test_images), True)
            continue
        measured = PIXEL_RANGE in source_and_location(word)[0].reads_keys
        reading = Reading(pixel_range=pixel_range if measured else "")
        images = cached_dataset(word, data_dir, reading).test_images[: len(dataset.test_images)]
        yield ForeignImages(name, False, like(dataset, images, f"ood-dataset '{word}'"))


def _names(given: list[str]) -> list[str]:
    """Return a name for each word, no two of them the same."""
    names: list[str] = []
    for word in given:
        stem = PurePath(word.rpartition(":")[2]).stem
        numbered = (f"{stem}-{number}" if number > 1 else stem for number in count(1))
        names.append(next(name for name in numbered if name not in names))
    return names
