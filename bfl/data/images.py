"""Images of another size or of other channels, as pure functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.cpus import memory_bytes

Images = npt.NDArray[np.uint8 | np.float32]
"""Images [N, H, W, C]: uint8, or float32 of the same scale, on which 0 is black and 255 white."""

GREY_OF_RGB = (0.299, 0.587, 0.114)
"""Weights of red, green and blue (ITU-R BT.601), as Pillow has them."""

AT_ONCE = 256
"""Number of images resized at once: in float64 they take eight times their memory."""


def check_fits(count: int, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless so many images of a shape fit in this machine's memory."""
    memory = memory_bytes()
    # The images, and those made at once in float64, some three times over.
    needed = math.prod(shape) * (count + 3 * 8 * min(count, AT_ONCE))
    if memory and needed > memory:
        raise ValueError(
            f"{count:,} images of {' x '.join(map(str, shape))} take {needed / 2**30:,.1f} GiB, "
            f"and this machine has {memory / 2**30:,.1f}; give a smaller size"
        )


def padded(images: Images, side: int) -> Images:
    """Return images [N, H, W, C] that repeat the pixels of their edges up to a side.

    Of an odd number of new rows or columns the one more is below or on the right. Larger images
    are a ValueError.
    """
    height, width = images.shape[1:3]
    if side < max(height, width):
        raise ValueError(f"images of {height} x {width} pixels cannot be padded to {side}")
    added = [((side - old) // 2, (side - old + 1) // 2) for old in (height, width)]
    return np.pad(images, [(0, 0), *added, (0, 0)], mode="edge")


def shifted(images: Images, pixels: int, generator: np.random.Generator) -> Images:
    """Return images [N, H, W, C], each shifted by up to so many rows and columns, drawn uniformly.

    The pixels of edges repeat.
    """
    count, height, width = images.shape[:3]
    down, right = generator.integers(-pixels, pixels + 1, (2, count, 1))
    rows = np.clip(np.arange(height) - down, 0, height - 1)
    columns = np.clip(np.arange(width) - right, 0, width - 1)
    moved: Images = images[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return moved


def resized(images: Images, height: int, width: int) -> Images:
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


def as_type(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> Images:
    """Return values as images of a type: within 0 to 255 and, of integers, rounded."""
    if values.dtype == np.uint8 == dtype:
        return values
    whole = values if dtype.kind == "f" else np.rint(values)
    return np.asarray(np.clip(whole, 0, 255), dtype)


def _weights(old: int, new: int) -> npt.NDArray[np.float64]:
    """Return the weights (new, old) of old pixels in new ones along an axis; rows add up to 1."""
    pixels, scale = np.arange(old), old / new
    if new <= old:
        ends = np.arange(new + 1)[:, np.newaxis] * scale
        covered = np.minimum(ends[1:], pixels + 1) - np.maximum(ends[:-1], pixels)
        return np.asarray(np.maximum(covered, 0.0) / scale)
    centres = np.clip((np.arange(new)[:, np.newaxis] + 0.5) * scale - 0.5, 0, old - 1)
    return np.asarray(np.maximum(1.0 - np.abs(centres - pixels), 0.0))


def with_channels(images: Images, channels: int) -> Images:
    """Return images [N, H, W, C] with one or three channels: three equal ones of grey, or grey.

    Raises:
        ValueError: They have other channels than 1, 3 or ``channels``.
    """
    old = images.shape[-1]
    if old == channels:
        return images
    if (old, channels) == (1, 3):
        return np.repeat(images, 3, axis=-1)
    if (old, channels) == (3, 1):
        return as_type(np.round(images @ np.array(GREY_OF_RGB), 6), images.dtype)[..., np.newaxis]
    hint = "; without transparency: images[..., :3]" if old == 4 else ""
    raise ValueError(f"images of {old} channels cannot be made into images of {channels}{hint}")
