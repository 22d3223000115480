"""Pillow's images as arrays, and many of them as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bfl.data.datasets.pixels import as_pixels
from bfl.data.datasets.reading import Reading
from bfl.data.images import Images, check_fits, with_channels
from bfl.errors import DataError


def pixels_of(image: Any, pixel_range: str | None = None) -> Images:
    """Return one of Pillow's images (H, W, C) with one channel or three, without transparency.

    Grey ones of 16 bits or of floats become floats on the scale of pixels.

    Args:
        pixel_range: The scale of its values, as for ``as_pixels``.

    Raises:
        DataError: Its values are on no scale, or more than Pillow reads.
        Exception: Pillow and its decoders have exceptions of their own, by what is damaged.
    """
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)[..., np.newaxis]
        of_16_bits = values.dtype.kind in "iu" and values.min() >= 0 and values.max() < 2**16
        if of_16_bits and not pixel_range:
            return np.asarray(values / 257, np.float32)
        name = f"mode {image.mode}"
        return np.asarray(as_pixels({name: values}, pixel_range)[name], np.float32)
    # Of 16-bit colours Pillow gives the upper 8 bits, and says so in what it is to decode alone.
    if ";16" in str(getattr(image, "tile", "")):
        raise DataError("colours of 16 bits, of which Pillow reads 8; store them as arrays (npz:)")
    grey = image.mode in ("1", "L", "LA")
    pixels = np.asarray(image.convert("L" if grey else "RGB"), np.uint8)
    pixels = pixels[..., np.newaxis] if grey else pixels
    return as_pixels({"it": pixels}, pixel_range)["it"] if pixel_range else pixels


def stacked(images: Iterable[tuple[str, Images]], count: int, reading: Reading) -> Images:
    """Return images (N, H, W, C) in the run's shape: uint8, or float32 if any is of floats.

    Grey ones among colours get three equal channels.

    Args:
        images: Images (H, W, C), each with its name for messages.
        count: Their number N.

    Raises:
        DataError: They differ in size, and the run says none; or they cannot get the shape.
    """
    found: list[Images] = []
    names: list[str] = []
    for name, image in images:
        try:
            shaped = reading.images(image[np.newaxis])[0]
            if not found:
                check_fits(count, shaped.shape)
        except ValueError as error:
            raise DataError(f"{name}: {error}") from error
        found.append(shaped)
        names.append(name)
        if shaped.shape[:2] != found[0].shape[:2]:
            one, other = (" x ".join(map(str, a.shape[:2])) for a in (shaped, found[0]))
            raise DataError(
                f"{name} is {one} and {names[0]} {other} (height x width); images of several sizes "
                "need the key image-size"
            )
    channels = max(image.shape[2] for image in found)
    dtype = np.result_type(*{image.dtype for image in found})
    array = np.empty((len(found), *found[0].shape[:2], channels), dtype)
    for place, image in enumerate(found):
        array[place] = with_channels(image, channels)
    return array
