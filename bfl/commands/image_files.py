"""Files of images that commands are given."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from bfl.archives import ALONE, open_arrays
from bfl.data.datasets import pictures
from bfl.data.datasets.pictures import SUFFIXES as PICTURES
from bfl.data.datasets.pictures import Unused, files_below, pictures_among
from bfl.data.datasets.reading import Reading
from bfl.data.images import Images
from bfl.errors import ConfigurationError, DataError, unknown_name

USUAL_NAMES = ("images", "x_test")
"""Usual names of the array of images in a file."""


def read_images(path: Path, array: str = "", *, unclear: str) -> npt.NDArray[Any]:
    """Return the images in a NumPy file.

    Args:
        array: The name of an archive's array; empty: one of the usual names, or the only array.
        unclear: What to do where it is not clear which array is meant, for the message.

    Raises:
        DataError: The file cannot be read, or it is not clear which array is meant.
        ConfigurationError: There is no array of that name.
    """
    with open_arrays(path) as held:
        found = held[ALONE if ALONE in held else _chosen(path, list(held), array, unclear)]
    if not found.ndim:
        raise DataError(f"{path} holds one number, and no images")
    return found


def read_pictures(path: Path, reading: Reading) -> tuple[tuple[str, ...], Images]:
    """Return the images in a folder, or in one file, (N, H, W, C), and their N paths from there.

    Damaged ones are left out with a warning, if the run's keys say so.

    Args:
        path: A folder, in and below which all image files are taken but hidden ones; or an image
            file.

    Raises:
        DataError: There are none, or one cannot be read.
    """
    root = path.parent if path.is_file() else path
    unused = Unused(root)
    files = pictures_among([path] if path.is_file() else files_below(path), unused)
    if not files:
        raise DataError(f"{path} has no image; their names end with {', '.join(PICTURES)}")
    images, damaged, notes = pictures.read_pictures(files, reading, unused)
    for line in (*notes, *unused.notes()):
        warnings.warn(line, stacklevel=2)
    names = tuple(str(each.relative_to(root)) for each in files if each not in damaged)
    return names, images


def _chosen(path: Path, names: Sequence[str], wanted: str, unclear: str) -> str:
    if wanted:
        if wanted not in names:
            raise ConfigurationError(f"{path}: --array: {unknown_name('array', wanted, names)}")
        return wanted
    found = [name for name in USUAL_NAMES if name in names] or list(names)
    if len(found) == 1 or (found and found[0] in USUAL_NAMES):
        return found[0]
    held = ", ".join(names) or "nothing"
    raise DataError(f"{path} holds {held}; {unclear}")
