"""Images as arrays of pixels, of any scale, size and number of channels, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError, DataError

Array = npt.NDArray[Any]
Images = npt.NDArray[np.uint8 | np.float32]
"""Images [N, H, W, C]: uint8, or float32 of the same scale, on which 0 is black and 255 white."""

WHITE = 255

ALLOWED = 'allowed: uint8, floats in [0, 1], or in arrays numbers within pixel-range="LOW:HIGH"'

GREY_OF_RGB = (0.299, 0.587, 0.114)  # ITU-R BT.601, as Pillow has them
AT_ONCE = 256  # images resized at once: in float64 they take eight times their memory


def as_pixels(images: Mapping[str, Array], pixel_range: str = "") -> dict[str, Images]:
    """Return images on the scale of pixels, 0 to 255: uint8 as it is, or else float32.

    They are uint8, or floats in [0, 1], or by ``pixel-range`` numbers of any type: LOW becomes 0,
    and HIGH 255. A DataError names the first value that is none.
    """
    if not pixel_range and all(array.dtype == np.uint8 for array in images.values()):
        return dict(images)
    found: dict[str, Images] = {}
    low, high = range_of(pixel_range) if pixel_range else (0.0, 1.0)
    for name, array in images.items():
        if array.dtype == np.uint8 and not pixel_range:
            found[name] = array.astype(np.float32)
            continue
        if array.dtype.kind not in ("iuf" if pixel_range else "f"):
            raise DataError(f"{name} has the type {array.dtype}; {ALLOWED}")
        with np.errstate(over="ignore"):
            outside = ~((array >= low) & (array <= high))
        if outside.any():
            place = tuple(map(int, np.unravel_index(int(outside.argmax()), outside.shape)))
            raise DataError(
                f"{name}{list(place)} is {array[place]}, outside {low:g} to {high:g}; {ALLOWED}"
            )
        found[name] = np.empty(array.shape, np.float32)
        for start in range(0, len(array), AT_ONCE):
            above = array[start : start + AT_ONCE].astype(np.float64) - low
            shares = np.clip(above / (high - low), 0, 1).astype(np.float32)
            found[name][start : start + AT_ONCE] = shares * np.float32(WHITE)
    return found


def range_of(given: str) -> tuple[float, float]:
    """Return LOW and HIGH of the key ``pixel-range``."""
    try:
        low, high = map(float, given.split(":"))
    except ValueError:
        low = high = math.nan
    if not (low < high and math.isfinite(high - low)):
        raise ConfigurationError(
            f"pixel-range is '{given}'; allowed: LOW:HIGH, two finite numbers of which LOW is the "
            'smaller one, such as "-1024:3071"'
        )
    return low, high


def pixels_of(image: Any) -> Images:
    """Return one of Pillow's images (H, W, C) with one channel or three, without transparency.

    Grey ones of 16 bits or of floats in [0, 1] become floats.
    """
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)[..., np.newaxis]
        if values.dtype.kind in "iu" and values.min() >= 0 and values.max() < 2**16:
            return np.asarray(values / 257, np.float32)
        return as_pixels({f"mode {image.mode}": values})[f"mode {image.mode}"]
    # Of 16-bit colours Pillow gives the upper 8 bits, and says so in what it is to decode alone.
    if ";16" in str(getattr(image, "tile", "")):
        raise DataError("colours of 16 bits, of which Pillow reads 8; store them as arrays (npz:)")
    grey = image.mode in ("1", "L", "LA")
    pixels = np.asarray(image.convert("L" if grey else "RGB"), np.uint8)
    return pixels[..., np.newaxis] if grey else pixels


def resize(images: Images, height: int, width: int) -> Images:
    """Return images [N, H, W, C] of another size, at least 1 by 1; those of integers are rounded.

    Along an axis that shrinks each pixel is the mean over what it covers of the old ones; along one
    that grows it is interpolated between the two nearest of them, beyond the last centre their
    edge. Images that have the size are given back as they are.
    """
    count, old_height, old_width, channels = images.shape
    if (old_height, old_width) == (height, width):
        return images
    rows, columns = _weights(old_height, height), _weights(old_width, width)
    result = np.empty((count, height, width, channels), images.dtype)
    for start in range(0, count, AT_ONCE):
        part = np.moveaxis(images[start : start + AT_ONCE].astype(np.float64), -1, 1)
        # A half may be a little less or more by the order in which a processor adds.
        values = as_type(np.round(rows @ part @ columns.T, 6), images.dtype)
        result[start : start + AT_ONCE] = np.moveaxis(values, 1, -1)
    return result


def _weights(old: int, new: int) -> npt.NDArray[np.float64]:
    """Return the weights (new, old) of old pixels in new ones along an axis; rows add up to 1."""
    pixels, scale = np.arange(old), old / new
    if new <= old:
        ends = np.arange(new + 1)[:, np.newaxis] * scale
        covered = np.minimum(ends[1:], pixels + 1) - np.maximum(ends[:-1], pixels)
        return np.asarray(np.maximum(covered, 0.0) / scale)
    centres = np.clip((np.arange(new)[:, np.newaxis] + 0.5) * scale - 0.5, 0, old - 1)
    return np.asarray(np.maximum(1.0 - np.abs(centres - pixels), 0.0))


def pad(images: Images, side: int) -> Images:
    """Return images [N, H, W, C] that repeat their edges up to a side, the last one more often.

    Larger images are a ValueError.
    """
    height, width = images.shape[1:3]
    if side < max(height, width):
        raise ValueError(f"images of {height} x {width} pixels cannot be padded to {side}")
    added = [((side - old) // 2, (side - old + 1) // 2) for old in (height, width)]
    return np.pad(images, [(0, 0), *added, (0, 0)], mode="edge")


def with_channels(images: Images, channels: int) -> Images:
    """Return images [N, H, W, C] with one or three channels; a ValueError of any other number."""
    old = images.shape[-1]
    if old == channels:
        return images
    if (old, channels) == (1, 3):
        return np.repeat(images, 3, axis=-1)
    if (old, channels) == (3, 1):
        return as_type(np.round(images @ np.array(GREY_OF_RGB), 6), images.dtype)[..., np.newaxis]
    raise ValueError(f"images of {old} channels cannot be made into images of {channels}")


def as_type(values: Array, dtype: np.dtype[Any]) -> Images:
    """Return values as images of a type: within 0 to 255 and, of integers, rounded."""
    if values.dtype == np.uint8 == dtype:
        return values
    whole = values if dtype.kind == "f" else np.rint(values)
    return np.asarray(np.clip(whole, 0, 255), dtype)
