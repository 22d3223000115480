"""Arrays by name, also in NumPy files (``.npz``, ``.npy``) that somebody else may have written.

No pickle is loaded, and whatever is wrong is a DataError that names the file and the array.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.lib.npyio import NpzFile

from bfl import files
from bfl.cpus import memory_bytes
from bfl.errors import DataError
from bfl.texts import printable

Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]
T = TypeVar("T")

ALONE = ""
"""The name of the one array of an ``.npy`` file."""

MOST_OF_A_VALUE = 2**24
"""Most bytes of one value, such as a text; a small file may promise more than the memory holds."""

_LONGEST_REASON = 200


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
            if nbytes > memory_bytes():
                raise ValueError(f"its arrays take {nbytes:,} bytes, more than this machine has")
            if len({*self._arrays}) < len(list(self._arrays)):
                raise ValueError("an array is there twice")
            if any(name.endswith(".npy") for name in self._arrays):  # NumPy would take another one
                raise ValueError("an array's name ends in .npy")
        # By what is damaged, zipfile, zlib and NumPy raise a dozen kinds.
        except Exception as error:
            raise DataError(
                f"{path}: not a NumPy archive (.npz), nor an array (.npy): "
                f"{'its content is neither' if 'pickle' in str(error) else _reason(error)}"
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
        with self._named(name):
            if self._header(name)[1].itemsize > MOST_OF_A_VALUE:
                raise ValueError(f"a value of it takes more than {MOST_OF_A_VALUE:,} bytes")
            array = np.asarray(self._arrays[name])
            if array.dtype.kind == "V" or (array.size and not array.dtype.itemsize):
                raise ValueError(f"it has the type {array.dtype} and the shape {array.shape}")
            array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
            if array.dtype.kind == "U" and array.dtype.itemsize:
                # NumPy keeps numbers that are no characters, and Python cannot.
                codes = array.reshape(-1).view(np.uint32)
                if ((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))).any():
                    raise ValueError("it holds texts with numbers that are no characters")
            return array

    def _header(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return an array's shape and type, before its values are read."""
        if not isinstance(self._arrays, NpzFile):
            return self._arrays[name].shape, self._arrays[name].dtype
        assert self._arrays.zip
        with self._arrays.zip.open(f"{name}.npy") as member:
            version = np.lib.format.read_magic(member)
            old = version == (1, 0)
            form = np.lib.format
            read = form.read_array_header_1_0 if old else form.read_array_header_2_0
            shape, _, dtype = read(member)
        return shape, dtype

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        if name not in self:
            raise KeyError(name)
        try:
            yield
        # As above: by what is damaged.
        except Exception as error:
            what = f"{printable(name)[:_LONGEST_REASON]} " if name else ""
            raise DataError(f"{self._path}: {what}cannot be read: {_reason(error)}") from error

    def checked(
        self, names: Iterable[str], *, rows: str | None = None, shapes: Shapes | None = None
    ) -> dict[str, Array]:
        """Return some arrays that go together: of these shapes, with as many rows as one of them.

        Raises:
            KeyError: One is missing.
            DataError: One cannot be read.
            ValueError: They do not go together.
        """
        names, wanted = tuple(names), shapes or {}
        for name in names:
            with self._named(name):
                shape, _ = self._header(name)
            if shape != wanted.get(name, shape):
                raise ValueError(f"{name} has the shape {shape}; expected {wanted[name]}")
        found = {name: self[name] for name in names}
        for name, array in found.items():
            if rows and array.shape[:1] != found[rows].shape[:1]:
                raise ValueError(
                    f"{name} has the shape {array.shape}, and {rows} {found[rows].shape}"
                )
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
        raise DataError(f"{path}: cannot be read: {_reason(error)}") from error
    with stream:
        yield stream


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if "pickle" in text:  # which NumPy takes any other content for
        text = "it holds no arrays but Python objects, if any; store them by .astype(str) or (int)"
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_REASON else f"{shown[:_LONGEST_REASON]} ..."
