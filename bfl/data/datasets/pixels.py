"""Images of any type of number as pixels of 0 to 255, by one scale for all that belong together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.images import AT_ONCE, Images, as_type
from bfl.errors import ConfigurationError, DataError

WHITE = 255
_MOST_CHANNELS = 4
_DARK, _RANGE = 16, 101
_OVERSHOOT = 0.4
_FEW = 1000
"""Fewer than one pixel in so many say nothing of a whole set."""

_HAIR = 0.01
"""Greatest part of a step by which floats that were integers differ from them."""

_AT_ONCE = 2**22
"""The number of pixels that are counted, about, where there are more."""

MEASUREMENTS = '; or give the scale of measurements, pixel-range="LOW:HIGH"'
"""Way out for numbers that are no pixels, for the end of a message."""

Array = npt.NDArray[Any]


def as_pixels(images: Mapping[str, Array], pixel_range: str | None = None) -> dict[str, Images]:
    """Return images as uint8 or, where 256 levels do not hold them, float32, of the same shape.

    Integers are pixels of 0 to 255, and of 0 to 65,535 in uint16 where one is above 255. Floats are
    those of 0 to 1 if none of all the arrays is more than half a step of a pixel above 1, and else
    those of 0 to 255. On either scale 0 becomes 0 and the greatest 255.

    Args:
        pixel_range: The key ``pixel-range``, by which any numbers become float32; None: it is not
            read here.

    Raises:
        DataError: They are neither, or their scale is not clear; the message has the line that
            mends it.
    """
    ranges = {name: _range(name, array) for name, array in images.items()}
    if pixel_range:
        return {name: _of_range(name, array, pixel_range) for name, array in images.items()}
    kinds = {name: array.dtype.kind == "f" for name, array in images.items()}
    if len(set(kinds.values())) > 1:
        described = " but ".join(f"{name} {array.dtype}" for name, array in images.items())
        raise DataError(
            f"{described.replace(' ', ' has the type ', 1)}; both are integers or both are floats, "
            "so that one scale serves both"
        )
    unit = {name: nearly_unit(0.0, highest) for name, (_, highest) in ranges.items()}
    scale = float(WHITE) if any(kinds.values()) and all(unit.values()) else 1.0
    if _of_16_bits(*images.values()):
        return {name: np.asarray(array / 257, np.float32) for name, array in images.items()}
    key = "" if pixel_range is None else MEASUREMENTS
    for name, (lowest, highest) in ranges.items():
        _check_range(name, images[name].dtype, (lowest, highest), scale, key)
        if kinds[name] and scale == 1.0:
            _check_scale(name, images[name], highest, unit, key)
    if not any(kinds.values()):
        return {name: array.astype(np.uint8, copy=False) for name, array in images.items()}
    return of_floats(images, scale)


def of_floats(images: Mapping[str, Array], scale: float) -> dict[str, Images]:
    """Return floats times a scale as images of one type, those a hair beyond 0 to 255 within.

    They are uint8 if all are steps of a pixel, up to what their type cannot tell.
    """
    scaled = {
        name: np.clip(array.astype(np.float32) * np.float32(scale), 0, WHITE)
        for name, array in images.items()
    }
    hair = max(WHITE * float(np.finfo(array.dtype).eps) for array in images.values())
    whole = all(np.abs(a - np.rint(a)).max() <= max(hair, _HAIR) for a in scaled.values())
    dtype = np.dtype(np.uint8 if whole else np.float32)
    return {name: as_type(array, dtype) for name, array in scaled.items()}


def range_of(given: str) -> tuple[Fraction, Fraction]:
    """Return LOW and HIGH of the key ``pixel-range``.

    Raises:
        ConfigurationError: It has another form, or no width.
    """
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
    """Return measurements as float32 pixels: LOW becomes 0, and HIGH 255.

    Args:
        given: Finite numbers.

    Raises:
        DataError: One is outside; the message has the first.
    """
    low, high = range_of(pixel_range)
    first: Any = math.ceil(low)
    last: Any = math.floor(high)
    floats = given.dtype.kind == "f"
    if floats:
        with np.errstate(over="ignore"):
            first, last = (given.dtype.type(float(end)) for end in (low, high))
    outside = (given < first) | (given > last)
    if outside.any():
        place = np.unravel_index(int(outside.argmax()), given.shape)
        raise DataError(
            f"{name}[{', '.join(map(str, place))}] is {given[place]}, and pixel-range is "
            f"'{pixel_range}'; allowed: values within it; a new run may have a wider one"
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


def _of_16_bits(*images: Array) -> bool:
    """Return whether all are uint16, and some beyond 8 bits."""
    return all(a.dtype == np.uint16 for a in images) and any(a.max() > WHITE for a in images)


def nearly_unit(lowest: float, highest: float) -> bool:
    """Return whether floats of such a range are in [0, 1], but for less than half a step."""
    return bool(np.rint(lowest * WHITE) >= 0 and np.rint(highest * WHITE) <= WHITE)


def looks_unit(images: Array) -> bool:
    """Return whether floats look as if in [0, 1] though some are above: most of them, not whole."""
    most = 2 * _within(images) > np.count_nonzero(images > 0)
    return bool(most and not np.array_equal(images, np.rint(images)))


def line_of_negative(name: str, lowest: float, highest: float, key: str = "") -> str:
    """Return what makes pixels of floats of which some are below 0, for the end of a message.

    Args:
        key: What names the key for measurements, where it is read.
    """
    # As cubic and sinc filters overshoot; what was normalised is further from [0, 1].
    if lowest > -_OVERSHOOT and highest < 1 + _OVERSHOOT:
        return f"; of [0, 1], and resized: {name} = np.clip({name}, 0, 1)"
    if lowest >= -1 and highest <= 1:
        return f"; of [-1, 1]: {name} = ({name} + 1) / 2"
    line = (
        f"; other measurements become images by one line for all: {name} = ({name} - LOW) / "
        f"(HIGH - LOW), such as with {lowest:g} and {highest:g}"
    )
    return f"; undo a normalisation by mean and deviation{key or line}"


def _within(images: Array) -> int:
    return int(np.count_nonzero((images > 0) & (images <= 1)))


def _range(name: str, images: Array) -> tuple[float, float]:
    if images.dtype.kind not in "iuf":
        line = f"; {name} = {name}.astype(np.uint8) * 255" if images.dtype.kind == "b" else ""
        raise DataError(
            f"{name} has the type {images.dtype}; images are uint8, or floats in [0, 1] or "
            f"[0, 255]{line}"
        )
    lowest, highest = images.min(), images.max()
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        bad = ~np.isfinite(images)
        place = np.unravel_index(int(bad.argmax()), images.shape)
        raise DataError(
            f"{name}[{', '.join(map(str, place))}] is {images[place]}; {np.count_nonzero(bad)} of "
            f"{images.size} values are not finite"
        )
    return float(lowest), float(highest)


def _check_range(
    name: str, dtype: np.dtype[Any], ends: tuple[float, float], scale: float, key: str
) -> None:
    """Refuse values that do not become 0 to 255 by rounding."""
    lowest, highest = ends
    if np.rint(lowest * scale) >= 0 and np.rint(highest * scale) <= WHITE:
        return
    line = key
    if dtype.kind == "f" and lowest < 0:
        line = line_of_negative(name, lowest, highest, key)
    elif dtype.kind in "iuf" and lowest >= 0:
        line = f"; if {highest:g} is white: {name} = {name} / {highest:g}{key}"
    raise DataError(
        f"{name} holds values from {lowest:g} to {highest:g}; images are uint8, or floats in "
        f"[0, 1] or [0, 255]{line}"
    )


def _check_scale(
    name: str, images: Array, highest: float, unit: Mapping[str, bool], key: str
) -> None:
    """Refuse floats that are read as 0 to 255 for a value above 1 here or there, and look not so.

    Suspicious are floats of which most lie within [0, 1] and are not whole.
    """
    if not looks_unit(images):
        return
    if unit[name]:
        others = ", ".join(other for other, small in unit.items() if not small)
        raise DataError(
            f"{name} holds values from 0 to {highest:.7g}, as floats in [0, 1] do, and {others} "
            f"greater ones; both take one scale: {others} = {others} / 255, if it is in [0, 255]"
        )
    within, positive = _within(images), np.count_nonzero(images > 0)
    raise DataError(
        f"{name} holds values up to {highest:.7g}, of which {within} of {positive} above 0 are not "
        "above 1; images are floats in [0, 1] or in [0, 255]. Mend it by "
        f"{name} = np.clip({name}, 0, 1), or, if it is in [0, 255], by "
        f"{name} = np.rint({name}).astype(np.uint8){key}"
    )


def channels_last(name: str, shape: tuple[int, ...]) -> None:
    """Refuse images [N, C, H, W].

    Raises:
        DataError: With the line that mends it.
    """
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


def dark_pixels(name: str, images: Images) -> list[str]:
    """Return what is to be said of a set of images that is nearly black or nearly constant.

    Args:
        images: Not empty.
    """
    lowest, highest = round(float(images.min())), round(float(images.max()))
    flat = images.reshape(-1)
    # An odd step, so that no row and no channel is passed over.
    some = as_type(flat[:: flat.size // _AT_ONCE | 1], np.dtype(np.uint8))
    counts = np.bincount(some, minlength=WHITE + 1)
    below = np.cumsum(counts)
    # Where all but one in a thousand lie.
    shares = (1 / _FEW, 1 - 1 / _FEW)
    first, last = (int(np.searchsorted(below, below[-1] * share)) for share in shares)
    mend = f"; if {highest} is white, store them times {WHITE} / {highest}" if highest else ""
    if highest < _RANGE:
        said = "dark: the greatest of all"
    elif last < _DARK:
        said = f"nearly black: 99.9 % are at most {last}"
        mend = "; were they floats in [0, 1], with a few values above 1?"
    elif last - first < _DARK:
        said, mend = f"nearly constant: 99.8 % are from {first} to {last}", ""
    else:
        return []
    return [f"{name}: its pixels are {lowest} to {highest} of {WHITE}, which is {said}{mend}"]
