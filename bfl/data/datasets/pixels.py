"""Pixels: uint8, floats in [0, 1], or numbers within ``pixel-range``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.images import AT_ONCE, Images
from bfl.errors import ConfigurationError, DataError

WHITE = 255
_MOST_CHANNELS = 4

Array = npt.NDArray[Any]


def as_pixels(images: Mapping[str, Array], pixel_range: str = "") -> dict[str, Images]:
    """Return images on the scale of pixels, 0 to 255: uint8 as it is, or else float32.

    Args:
        images: uint8, or floats in [0, 1], of the same shape but for their number, by name.
        pixel_range: The key ``pixel-range``, by which numbers of any type become float32.
    """
    for name, array in images.items():
        if array.dtype.kind not in "iuf":
            raise DataError(f"{name} has the type {array.dtype}; {_allowed(array)}")
        if not (finite := np.isfinite(array)).all():
            place = _place(~finite)
            raise DataError(
                f"{name}{list(place)} is {array[place]}; {np.count_nonzero(~finite)} of "
                f"{array.size} values are not finite"
            )
    if pixel_range:
        return {name: _of_range(name, array, pixel_range) for name, array in images.items()}
    for name, array in images.items():
        lowest, highest = array.min(), array.max()
        unit = array.dtype.kind == "f" and lowest >= 0 and highest <= 1
        if not (unit or array.dtype == np.uint8):
            raise DataError(
                f"{name} has the type {array.dtype} and values from {lowest:.8g} to {highest:.8g}; "
                f"{_allowed(array)}"
            )
    if all(array.dtype == np.uint8 for array in images.values()):
        return dict(images)
    return {
        name: array.astype(np.float32) * np.float32(1 if array.dtype == np.uint8 else WHITE)
        for name, array in images.items()
    }


def _allowed(array: Array) -> str:
    """Return what pixels are, and what makes such of an array, for the end of a message."""
    line = 'allowed: uint8, floats in [0, 1], or in arrays numbers within pixel-range="LOW:HIGH"'
    if array.dtype.kind == "b":
        return f"{line}; .astype(np.uint8) * 255 makes pixels of a mask"
    if array.dtype.kind in "iuf" and array.min() >= 0 and 2 < array.max() <= WHITE:
        return f'{line}, which is "0:{WHITE}" if {WHITE} is white'
    return line


def _place(wrong: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(int(wrong.argmax()), wrong.shape)))


def range_of(given: str) -> tuple[Fraction, Fraction]:
    """Return LOW and HIGH of the key ``pixel-range``."""
    try:
        low, high = (
            Fraction(int(text) if text.strip("+- ").isdecimal() else float(text))
            for text in given.split(":")
        )
        # A fraction that no float holds is an OverflowError.
        sound = low < high and all(map(math.isfinite, map(float, (low, high, high - low))))
    except (ValueError, OverflowError):
        sound = False
    if not sound:
        raise ConfigurationError(
            f"pixel-range is '{given}'; allowed: LOW:HIGH, two finite numbers of which LOW is the "
            'smaller one, such as "-1024:3071"'
        )
    return low, high


def _of_range(name: str, given: Array, pixel_range: str) -> Images:
    """Return measurements as float32 pixels: LOW becomes 0, and HIGH 255."""
    low, high = range_of(pixel_range)
    first: Any = math.ceil(low)
    last: Any = math.floor(high)
    floats = given.dtype.kind == "f"
    if floats:
        with np.errstate(over="ignore"):
            first, last = (given.dtype.type(float(end)) for end in (low, high))
    outside = (given < first) | (given > last)
    if outside.any():
        place = _place(outside)
        raise DataError(
            f"{name}{list(place)} is {given[place]}, and pixel-range is '{pixel_range}'; allowed: "
            "values within it; a new run may have a wider one"
        )
    images = np.empty(given.shape, np.float32)
    for start in range(0, len(given), AT_ONCE):
        part = given[start : start + AT_ONCE]
        if floats:
            above = part.astype(np.float64) - float(low)
        else:
            # Integers from the first one on, modulo 2^64, as float64 does not hold all of them.
            least = max(first, int(np.iinfo(given.dtype).min))
            steps = part.astype(np.uint64) - np.uint64(least % 2**64)
            above = steps.astype(np.float64) + float(least - low)
        shares = np.clip(above / float(high - low), 0, 1).astype(np.float32)
        images[start : start + AT_ONCE] = shares * np.float32(WHITE)
    return images


def channels_last(name: str, shape: tuple[int, ...]) -> None:
    """Refuse images [N, C, H, W]."""
    if len(shape) != 4:
        return
    channels, height, width = shape[1:]
    few = channels <= _MOST_CHANNELS < min(height, width)
    # An image that is as wide as it has channels, and less high, is none.
    if few or channels < height == width:
        raise DataError(
            f"{name} has the shape {shape}, which looks like [N, C, H, W]; channels come last: "
            f"{name} = {name}.transpose(0, 2, 3, 1)"
        )
