"""Test images that are corrupted, more and more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bfl.data.datasets.foreign import noised, words
from bfl.data.images import Images, as_type
from bfl.errors import ConfigurationError, unknown_name

NONE = "none"


def _blurred(images: Images, deviation: float) -> Images:
    from scipy.ndimage import gaussian_filter

    # Of the image's height, so that it is the same in images of any size.
    pixels = deviation / 32 * images.shape[1]
    sigma = (0, pixels, pixels, 0)
    blurred = gaussian_filter(images.astype(np.float32), sigma, mode="nearest")
    return as_type(blurred, images.dtype)


def _flattened(images: Images, factor: float) -> Images:
    mean = images.mean(axis=(1, 2), keepdims=True)
    return as_type(mean + factor * (images - mean), images.dtype)


def _turned(images: Images, degrees: float) -> Images:
    from scipy.ndimage import rotate

    given = images.astype(np.float32)
    turned = rotate(given, degrees, axes=(1, 2), reshape=False, order=1, mode="nearest")
    return as_type(turned, images.dtype)


CORRUPTIONS: dict[str, tuple[Callable[[Images, float], Images], tuple[float, ...]]] = {
    "noise": (lambda images, share: noised(images, 255 * share), (0.08, 0.12, 0.18, 0.26, 0.38)),
    "blur": (_blurred, (1.5, 2.0, 2.5, 3.0, 4.0)),
    "contrast": (_flattened, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "rotation": (_turned, (15.0, 30.0, 45.0, 60.0, 75.0)),
}
"""Corruptions and their strengths: Gaussian noise, as a share of the range of pixels; a Gaussian
blur, in 1/32 of the height; the factor of the deviations from an image's mean; degrees.

Reference: Hendrycks and Dietterich (2019), "Benchmarking neural network robustness to common
corruptions and perturbations", whose noise and contrast these are; Ovadia et al. (2019), "Can you
trust your model's uncertainty?", for rotations by 15 degrees more each time.
"""

STRENGTHS = range(1, 6)


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


def corrupted(images: Images, name: str, strength: int) -> Images:
    """Return images [N, H, W, C] changed by one of ``CORRUPTIONS`` at one of ``STRENGTHS``."""
    change, levels = CORRUPTIONS[name]
    return change(images, levels[strength - 1])
