"""Images as pixels: files of a folder, what a run does not use of it, and the scale of arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.reading import UNREADABLE, Reading
from bfl.data.images import AT_ONCE, Images, check_fits, with_channels
from bfl.errors import ConfigurationError, DataError
from bfl.texts import few

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
    line = 'allowed: uint8, floats in [0, 1], or in arrays numbers within pixel-range="LOW:HIGH"'
    if array.dtype.kind == "b":
        return f"{line}; .astype(np.uint8) * 255 makes pixels of a mask"
    if array.dtype.kind in "iuf" and array.min() >= 0 and 2 < array.max() <= WHITE:
        return f'{line}, which is "0:{WHITE}" if {WHITE} is white'
    return line


def _place(wrong: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(int(wrong.argmax()), wrong.shape)))


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


def _of_range(name: str, given: Array, pixel_range: str) -> Images:
    """Return measurements as float32 pixels: LOW becomes 0, and HIGH 255."""
    low, high = range_of(pixel_range)
    with np.errstate(over="ignore"):
        outside = (given < low) | (given > high)
    if outside.any():
        place = _place(outside)
        raise DataError(
            f"{name}{list(place)} is {given[place]}, and pixel-range is '{pixel_range}'; allowed: "
            "values within it; a new run may have a wider one"
        )
    images = np.empty(given.shape, np.float32)
    for start in range(0, len(given), AT_ONCE):
        above = given[start : start + AT_ONCE].astype(np.float64) - low
        shares = np.clip(above / (high - low), 0, 1).astype(np.float32)
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


SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff"),
    *(".webp", ".ppm", ".pgm", ".pbm", ".jp2"),
)
"""Endings of the files that are read as images."""

SHOWN = 3
"""Most images that a warning names."""

LOST_LINKS, OTHER_ENDINGS = "links that lead nowhere", "files of other endings"
NO_FILES = "neither files nor folders"
HIDDEN, CIRCLES = "hidden files or folders", "links to a folder above"
DAMAGED, FURTHER_PAGES = "damaged images", "images with further pages"
"""Reasons for which something in a folder is not used."""


@dataclass
class Unused:
    """Paths in a folder that a run does not use, by reason."""

    root: Path
    paths: dict[str, list[Path]] = field(default_factory=dict)

    def add(self, reason: str, path: Path) -> None:
        """Count a path by its reason."""
        self.paths.setdefault(reason, []).append(path)

    def counts(self) -> dict[str, int]:
        """Return how many there are of each reason."""
        return {reason: len(paths) for reason, paths in self.paths.items()}

    def notes(self) -> tuple[str, ...]:
        """Return what is to be said of them, a line, or nothing."""
        parts = [
            f"{len(paths)} {reason} ({self.shown(paths)})" for reason, paths in self.paths.items()
        ]
        return (f"{self.root}: not used are {', '.join(parts)}",) if parts else ()

    def shown(self, paths: Sequence[Path]) -> str:
        """Return the first of some paths, and how many more there are."""
        return few([path.relative_to(self.root).as_posix() for path in paths], SHOWN)


def files_below(
    folder: Path, unused: Unused | None = None, above: tuple[Path, ...] = ()
) -> Iterator[Path]:
    """Yield files below a folder in the order of their paths; what is left out goes to ``unused``.

    Left out are hidden ones and circles of links; links that lead nowhere are files.
    """
    above = (*above, folder.resolve())
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".")
        if hidden or (path.is_dir() and path.resolve() in above):
            if unused:
                unused.add(HIDDEN if hidden else CIRCLES, path)
        elif path.is_dir():
            yield from files_below(path, unused, above)
        else:
            yield path


def pictures_below(folder: Path, unused: Unused, known: Sequence[Path] = ()) -> list[Path]:
    """Return the files below, or the file, that are images by their endings.

    Others, unless known, go to ``unused``.
    """
    found = []
    for path in files_below(folder, unused) if folder.is_dir() else [folder]:
        if not path.exists():
            unused.add(LOST_LINKS, path)
        elif not path.is_file():  # a pipe, from which nothing may ever come
            unused.add(NO_FILES, path)
        elif path.suffix.lower() in SUFFIXES:
            found.append(path)
        elif path not in known:
            unused.add(OTHER_ENDINGS, path)
    return found


def read_pictures(
    paths: Sequence[Path], reading: Reading, unused: Unused
) -> tuple[Images, dict[Path, str], tuple[str, ...]]:
    """Return the images in files (N, H, W, C), the damaged files, and what is to be said."""
    damaged: dict[Path, str] = {}
    transparent: list[Path] = []

    def open_images() -> Iterator[tuple[str, Images]]:
        for path in paths:
            try:
                yield str(path), _open_picture(path, transparent, unused)
            except DataError as error:
                if reading.unreadable != "skip":
                    hint = f'{UNREADABLE}="skip" leaves such images out'
                    raise DataError(f"{error}; {hint}") from error
                damaged[path] = str(error)
                unused.add(DAMAGED, path)
        if len(damaged) == len(paths):
            first = next(iter(damaged.values()), "")
            raise DataError(f"none of {len(paths)} images can be read: {first}")

    images = stack_images(open_images(), len(paths), reading)
    lost = f"{len(transparent)} of {len(paths)} images lose their transparency"
    note = f"{unused.root}: {lost}: {unused.shown(transparent)}"
    return images, damaged, (note,) if transparent else ()


def _open_picture(path: Path, transparent: list[Path], unused: Unused) -> Images:
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            if getattr(image, "n_frames", 1) > 1:
                unused.add(FURTHER_PAGES, path)
            ImageOps.exif_transpose(image, in_place=True)
            pixels = pixels_of(image)
            if image.mode.endswith(("A", "a")) or "transparency" in image.info:
                transparent.append(path)
            return pixels
    # Pillow and its decoders have exceptions of their own, by what is damaged.
    except Exception as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def pixels_of(image: Any, pixel_range: str = "") -> Images:
    """Return one of Pillow's images (H, W, C) with one channel or three, without transparency.

    Grey ones of 16 bits or of floats become floats; for ``pixel_range`` see ``as_pixels``.
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


def stack_images(images: Iterable[tuple[str, Images]], count: int, reading: Reading) -> Images:
    """Return images, given with their names, in the run's shape (N, H, W, C).

    They are uint8, or float32 if any is of floats; grey ones among colours get three channels.
    """
    found: list[Images] = []
    first = ""
    for name, image in images:
        try:
            shaped = reading.images(image[np.newaxis])[0]
            if not found:
                first = name
                check_fits(count, shaped.shape)
        except ValueError as error:
            raise DataError(f"{name}: {error}") from error
        found.append(shaped)
        if shaped.shape[:2] != found[0].shape[:2]:
            one, other = (" x ".join(map(str, a.shape[:2])) for a in (shaped, found[0]))
            raise DataError(
                f"{name} is {one} and {first} {other} (height x width); images of several sizes "
                "need the key image-size"
            )
    channels = max(image.shape[2] for image in found)
    dtype = np.result_type(*{image.dtype for image in found})
    array = np.empty((len(found), *found[0].shape[:2], channels), dtype)
    for place, image in enumerate(found):
        array[place] = with_channels(image, channels)
    return array
