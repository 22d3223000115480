"""Arrays by name, also in NumPy files (``.npz``, ``.npy``) that somebody else may have written.

No pickle is loaded, and whatever is wrong is a DataError that names the file and the array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt
import psutil
from numpy.lib.npyio import NpzFile

from bfl import files
from bfl.errors import DataError
from bfl.texts import printable

Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]
T = TypeVar("T")

ALONE = ""
"""The name of the one array of an ``.npy`` file."""


def add_prefix(prefix: str, arrays: Mapping[str, T]) -> dict[str, T]:
    """Return arrays with a prefix before their names: one group among others."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def strip_prefix(prefix: str, arrays: Mapping[str, T]) -> dict[str, T]:
    """Return the group that ``add_prefix`` has put among others.

    Example:
        >>> strip_prefix("optimizer.", {"optimizer.momentum": 1, "mean": 2})
        {'momentum': 1}
    """
    group = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): arrays[name] for name in group}


class ArrayFile(Mapping[str, Array]):
    """The arrays of an open file, by name; those of an archive are read when they are asked for.

    Args:
        begins: Where in it the arrays begin.
    """

    def __init__(self, path: Path, stream: IO[bytes], begins: int = 0) -> None:
        self._path = path
        try:
            stream.seek(begins)
            found = np.load(stream, allow_pickle=False)
            archive = isinstance(found, NpzFile)
            self._arrays: Mapping[str, Any] = found if archive else {ALONE: found}
            # A member is read up to the size that the zip's own list has of it.
            nbytes = sum(member.file_size for member in found.zip.infolist()) if archive else 0
            if nbytes > psutil.virtual_memory().total:
                raise ValueError(f"its arrays take {nbytes:,} bytes, more than this machine has")
        # By what is damaged, zipfile, zlib and NumPy raise a dozen kinds.
        except Exception as error:
            raise DataError(
                f"{path}: not a NumPy archive (.npz), nor an array (.npy): {reason_of(error)}"
            ) from error

    def __iter__(self) -> Iterator[str]:
        """Iterate over the arrays' names."""
        return iter(self._arrays)

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        """Return whether there is an array of that name; nothing is read."""
        return name in [*self._arrays]

    def __getitem__(self, name: str) -> Array:
        """Return an array in C order and this machine's order of bytes, or raise DataError."""
        if name not in self:
            raise KeyError(name)
        try:
            array = self._arrays[name]  # NumPy gives the bytes of a member that is no array
            if not isinstance(array, np.ndarray) or array.dtype.kind == "V":
                raise ValueError("it holds neither numbers nor texts")
            if array.size and not array.dtype.itemsize:
                raise ValueError(f"it has the type {array.dtype} and the shape {array.shape}")
            if array.dtype.kind == "U":
                # Raises for numbers that are no characters: NumPy keeps them, and Python cannot.
                "".join(array.ravel().tolist()).encode()
            return np.asarray(array, array.dtype.newbyteorder("="), order="C")
        # As above: by what is damaged.
        except Exception as error:
            what = f"{printable(name)[:200]} " if name else ""
            raise DataError(f"{self._path}: {what}cannot be read: {reason_of(error)}") from error

    def checked(self, names: Iterable[str], shapes: Shapes | None = None) -> dict[str, Array]:
        """Return some arrays, of these shapes.

        Raises:
            KeyError: One is missing.
            DataError: One cannot be read.
            ValueError: One has another shape.
        """
        found, wanted = {name: self[name] for name in names}, shapes or {}
        for name, array in found.items():
            if array.shape != wanted.get(name, array.shape):
                raise ValueError(f"{name} has the shape {array.shape}; expected {wanted[name]}")
        return found


@contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Give a block the arrays of a file, or raise DataError."""
    with open_regular(path) as stream:
        yield ArrayFile(path, stream)


@contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """Give a block a file, opened, of which any OSError is a DataError."""
    try:
        stream = files.open_regular(path)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:  # a name with a null character
        raise DataError(f"{path}: cannot be read: {reason_of(error)}") from error
    with stream:
        yield stream


def reason_of(error: Exception) -> str:
    """Return in a few printable words what went wrong with a file."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if "pickle" in text:  # which NumPy takes any other content for
        text = "it holds no arrays but Python objects, if any; store them by .astype(str) or (int)"
    return printable(text)[:200]
