"""The NumPy files of images, and of their classes, that commands are given."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError, DataError, unknown_name

USUAL_NAMES = ("images", "x_test")
"""What the array of images is called, unless a command is told otherwise."""

USUAL_LABELS = ("labels", "y_test")
"""What the array of the images' classes is called."""


def read_images(path: Path, array: str = "", *, unclear: str) -> npt.NDArray[Any]:
    """Return the images in a NumPy file.

    Args:
        path: The file.
        array: The name of an archive's array; empty: one of the usual names, or the only array.
        unclear: What to do where it is not clear which array is meant, for the message.

    Raises:
        DataError: The file cannot be read, or it is not clear which array is meant.
        ConfigurationError: There is no array of that name.
    """
    with _opened(path) as content:
        if isinstance(content, np.ndarray):
            found = content
        else:
            found = np.asarray(content[_chosen(path, content.files, array, unclear)])
    if not found.ndim:
        raise DataError(f"{path} holds one number, and no images")
    return found


def read_labels(path: Path, images: int, classes: int) -> npt.NDArray[np.int64]:
    """Return the (N,) classes of a NumPy archive's images, from 0.

    Args:
        path: The file.
        images: The number N of its images.
        classes: How many classes there are.

    Raises:
        DataError: The file cannot be read, or has no such classes.
    """
    usual = " or ".join(USUAL_LABELS)
    with _opened(path) as content:
        names = [] if isinstance(content, np.ndarray) else content.files
        found = [name for name in USUAL_LABELS if name in names]
        if not found:
            raise DataError(f"{path} has no array {usual}: the classes of its images are not known")
        labels = np.asarray(content[found[0]])
    if labels.dtype.kind not in "iu" or labels.size != images:
        raise DataError(
            f"{path}: {found[0]} has shape {labels.shape} and type {labels.dtype}; expected one "
            f"whole number for each of the {images} images"
        )
    # Before they are made int64, in which the greatest of uint64 are negative.
    if labels.min() < 0 or labels.max() >= classes:
        raise DataError(
            f"{path}: {found[0]} has classes from {labels.min()} to {labels.max()}; expected 0 to "
            f"{classes - 1}, the classes of the run"
        )
    return labels.reshape(-1).astype(np.int64)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a NumPy file, an array or an archive of them.

    Raises:
        DataError: It cannot be read.
    """
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            yield content
            return
        with content as archive:
            yield archive
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: not a NumPy file that can be read: {error}") from error


def _chosen(path: Path, names: Sequence[str], wanted: str, unclear: str) -> str:
    if wanted:
        if wanted not in names:
            raise ConfigurationError(f"{path}: --array: {unknown_name('array', wanted, names)}")
        return wanted
    found = [name for name in USUAL_NAMES if name in names] or list(names)
    if len(found) == 1 or found[0] in USUAL_NAMES:
        return found[0]
    held = ", ".join(names) or "nothing"
    raise DataError(f"{path} holds {held}; {unclear}")
