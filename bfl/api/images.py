"""Check the images given for prediction; refuse others with what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.pixels import WHITE, line_of_negative, looks_unit, nearly_unit, rounded
from bfl.errors import DataError

Images = npt.NDArray[np.uint8]


def checked_images(given: npt.ArrayLike, shape: tuple[int, int, int]) -> Images:
    """Return images (N, H, W, C) as a network takes them, uint8.

    Integers are pixels of 0 to 255. Floats are pixels of 0.0 to 1.0, which are multiplied by 255
    and rounded, as in an archive of floats that a run learns from. Floats beyond 1, by more than
    half a step of a pixel, are refused: of dark images nobody could tell which scale they have.

    Args:
        given: Images (N, H, W, C), or (N, H, W) where C is 1.
        shape: Height, width and channels of the images that the network takes.

    Raises:
        DataError: The images are empty, or of another shape, type or range; the message says what
            was given and what is expected.
    """
    images = _array(given)
    expected = f"expected (N, {', '.join(map(str, shape))})"
    if shape[2] == 1:
        expected += f" or (N, {shape[0]}, {shape[1]})"
        if images.shape[1:] == shape[:2]:
            images = images[..., np.newaxis]
    if images.shape[1:] != shape:
        hint = ""
        if images.shape in (shape, shape[: 3 - (shape[2] == 1)]):
            hint = "; a single image needs an axis more: images[np.newaxis]"
        elif images.ndim == 4 and images.shape[1:] == (shape[2], shape[0], shape[1]):
            hint = "; channels come last: images.transpose(0, 2, 3, 1)"
        raise DataError(f"images have shape {np.shape(given)}; {expected}{hint}")
    if not len(images):
        raise DataError(f"images are empty: they have shape {images.shape}; {expected}, N >= 1")
    return _pixels(images)


def _array(given: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        images = np.asarray(given)
    except ValueError as error:  # a ragged list
        raise DataError(f"images cannot be made an array: {error}") from error
    if images.dtype.kind not in "iuf":
        raise DataError(
            f"images have type {images.dtype}; expected integers of 0 to 255 or floats of 0 to 1"
        )
    return images


def _pixels(images: npt.NDArray[Any]) -> Images:
    lowest, highest = images.min(), images.max()
    is_float = images.dtype.kind == "f"
    # Written so that NaN, which compares with nothing, is refused as well.
    if not (nearly_unit(lowest, highest) if is_float else lowest >= 0 and highest <= WHITE):
        hint = ""
        if not np.isfinite(images).all():
            bad = int(np.count_nonzero(~np.isfinite(images)))
            hint = f"; {bad} of {images.size} are not finite"
        elif is_float and lowest >= 0 and looks_unit(images):
            hint = "; few are above 1: np.clip(images, 0, 1)"
        elif is_float and lowest >= 0 and highest <= WHITE:
            hint = "; pixels of 0 to 255 come as integers: np.rint(images).astype(np.uint8)"
        elif is_float and lowest < 0:
            hint = line_of_negative("images", lowest, highest)
        raise DataError(
            f"images hold values from {lowest} to {highest}, of type {images.dtype}; expected "
            f"integers of 0 to 255 or floats of 0 to 1{hint}"
        )
    return (rounded(images, float(WHITE)) if is_float else images).astype(np.uint8, copy=False)
