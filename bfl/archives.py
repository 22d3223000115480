"""NumPy archives (``.npz``) and array files (``.npy``) that somebody else may have written.

One reader for all of them. What a header promises is checked before anything is allocated, no
pickle is loaded, and whatever is wrong is a DataError that names the file and the array.
"""

from __future__ import annotations

import io
import math
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from bfl.cpus import memory_bytes
from bfl.errors import DataError
from bfl.texts import printable

Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]

ALONE = ""
"""The name of the one array of an ``.npy`` file."""

_DEFLATE_MOST = 1032
"""One byte of deflated data gives at most so many."""

_LONGEST_VALUE = 2**24
"""Bytes of one value, such as a text; the manifest of a network of 1,000 layers has 1 MB."""

_LONGEST_HEADER = 2**14
"""Bytes of an array's header; NumPy takes 10,000 of somebody else's."""

_ENCRYPTED = 1
_LONGEST_REASON = 200


class Header(NamedTuple):
    """The shape that an array's header promises, and the memory that it takes."""

    shape: tuple[int, ...]
    nbytes: int


class ArrayFile(Mapping[str, Array]):
    """The arrays of an open file, by name; each is read when it is asked for.

    Args:
        begins: Where in it the arrays begin.
    """

    def __init__(self, path: Path, stream: IO[bytes], begins: int = 0) -> None:
        self._path, self._stream = path, stream
        self._members: dict[str, list[zipfile.ZipInfo | None]] = {}
        with self._decoding():
            self._size = stream.seek(0, 2) - begins
            stream.seek(begins)
            alone = stream.read(6) == b"\x93NUMPY"
            stream.seek(begins)
        if alone:
            self._members = {ALONE: [None]}
            return
        try:
            self._zip = zipfile.ZipFile(stream)
        # As below: by what is damaged.
        except Exception as error:
            raise DataError(
                f"{path}: not a NumPy archive (.npz), nor an array (.npy): {_reason(error)}"
            ) from error
        for info in self._zip.infolist():
            self._members.setdefault(info.filename.removesuffix(".npy"), []).append(info)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the arrays' names."""
        return iter(self._members)

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._members)

    def header(self, name: str) -> Header:
        """Return what an array's header promises.

        Raises:
            KeyError: There is no such array.
            DataError: It cannot be read, or holds less than it promises.
        """
        with self._opened(name) as (whole, held):
            # Its own length is a promise as well, of which NumPy reads all.
            stream = io.BytesIO(whole.read(_LONGEST_HEADER))
            version = np.lib.format.read_magic(stream)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"its format has the version {version}")
            one, two = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
            shape, _, dtype = (one if version == (1, 0) else two)(stream)
            nbytes, held = math.prod(shape) * dtype.itemsize, held - stream.tell()
            if dtype.hasobject:
                raise ValueError(
                    "it holds Python objects, which are not loaded; store it with a type of "
                    "NumPy's, as by .astype(int) or .astype(str)"
                )
            if dtype.kind == "V" or min(shape, default=0) < 0 or dtype.itemsize > _LONGEST_VALUE:
                raise ValueError(f"it has the type {dtype} and the shape {shape}")
            # An empty text takes nothing, however many there are.
            if nbytes > held or (not dtype.itemsize and math.prod(shape) > held):
                raise ValueError(
                    f"its header promises the shape {shape} of {dtype}, {nbytes:,} bytes, and "
                    f"there are at most {held:,}"
                )
            return Header(shape, nbytes)

    def checked(
        self, names: Iterable[str], *, rows: str | None = None, shapes: Shapes | None = None
    ) -> dict[str, Array]:
        """Return some arrays, read once their headers say that they go together.

        Args:
            rows: One of them, of which the others have as many rows.

        Raises:
            KeyError: One is missing.
            DataError: One cannot be read.
            ValueError: They do not go together.
        """
        headers = {name: self.header(name) for name in names}
        with self._decoding():
            nbytes = sum(header.nbytes for header in headers.values())
            if nbytes > (memory_bytes() or math.inf):
                raise ValueError(f"its arrays take {nbytes:,} bytes, more than this machine has")
        found = {name: header.shape for name, header in headers.items()}
        for name, shape in found.items():
            if rows and shape[:1] != found[rows][:1]:
                raise ValueError(f"{name} has the shape {shape}, and {rows} {found[rows]}")
            if shape != (shapes or {}).get(name, shape):
                raise ValueError(f"{name} has the shape {shape}; expected {(shapes or {})[name]}")
        return {name: self[name] for name in found}

    def __getitem__(self, name: str) -> Array:
        """Return an array, in C order and with this machine's order of bytes.

        Raises:
            KeyError: There is no such array.
            DataError: It cannot be read.
        """
        self.header(name)
        with self._opened(name) as (stream, _):
            array = np.lib.format.read_array(cast(Any, stream), allow_pickle=False)
            array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
            if array.dtype.kind == "U" and array.dtype.itemsize:
                # NumPy keeps numbers that are no characters, and Python cannot.
                codes = array.reshape(-1).view(np.uint32)
                if ((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))).any():
                    raise ValueError("it holds texts with numbers that are no characters")
            return array

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """Give a block an array's stream, and how many bytes it can hold at most."""
        members = self._members[name]
        with self._decoding(name):
            if len(members) > 1:
                raise ValueError("it is there twice")
            [info] = members
            if info is None:
                self._stream.seek(-self._size, 2)
                yield self._stream, self._size
                return
            if not info.filename.endswith(".npy"):
                raise ValueError(f"{info.filename} is not an array (.npy)")
            usual = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if info.flag_bits & _ENCRYPTED or not usual:
                raise ValueError(
                    "it is encrypted, or not compressed as NumPy does; write it by "
                    "np.savez_compressed"
                )
            most = _DEFLATE_MOST if info.compress_type == zipfile.ZIP_DEFLATED else 1
            # What the zip's own list says is no truer than what the header says.
            held = min(info.file_size, most * min(info.compress_size, self._size))
            with self._zip.open(info) as stream:
                yield stream, held

    @contextmanager
    def _decoding(self, name: str = ALONE) -> Iterator[None]:
        """Turn whatever a damaged file raises into a DataError that names it and the array."""
        try:
            yield
        except DataError:
            raise
        # By what is damaged, zipfile, zlib and NumPy raise a dozen kinds: BadZipFile, zlib.error,
        # struct.error, EOFError, NotImplementedError, RuntimeError, SyntaxError, MemoryError, ...
        except Exception as error:
            what = f"{printable(name)[:_LONGEST_REASON]} " if name else ""
            raise DataError(f"{self._path}: {what}cannot be read: {_reason(error)}") from error


@contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Give a block the arrays of a file.

    Raises:
        DataError: There is no such file, or it is none that can be read.
    """
    with open_regular(path) as stream:
        yield ArrayFile(path, stream)


@contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """Give a block a file, opened; not a pipe, in which one would wait for its other end.

    Raises:
        DataError: There is no such file, or it cannot be opened.
    """
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: {'a folder' if path.is_dir() else 'no file'}, and no archive")
        stream = path.open("rb")
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:  # a name with a null character
        raise DataError(f"{path}: cannot be read: {_reason(error)}") from error
    with stream:
        yield stream


def _reason(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    shown = printable(strerror or str(error) or type(error).__name__)
    return shown if len(shown) <= _LONGEST_REASON else f"{shown[:_LONGEST_REASON]} ..."
