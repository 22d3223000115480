"""Files that are written whole or not at all, files of others, and the paths that users give."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from bfl.errors import ConfigurationError, nearest

STALE_AFTER = 3600.0
"""Seconds without a write after which a temporary file is one that a killed process has left."""

MOST_BYTES_OF_A_NAME, MOST_BYTES_OF_A_PATH = 255, 4095
"""Limits of file systems in bytes: longer names and paths fail in a run's midst."""

LARGEST = 2**30
"""The most bytes of a file that are read as a whole."""

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]+\.tmp")


def open_regular(path: Path) -> BufferedReader:
    """Return a file of somebody else's, opened; OSError for a pipe, a device or a folder."""
    # A pipe would be waited for.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    stream = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is not a regular file")
    return stream


def read_regular(path: Path) -> bytes:
    """Return the content of a file of somebody else's, of at most ``LARGEST`` bytes, or OSError."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > LARGEST:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {LARGEST:,}")
        return stream.read(LARGEST)


def private_folder(path: Path) -> Path:
    """Return a folder inside another one, made if missing, that only its owner may enter."""
    if path.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "it is a link, which may lead elsewhere")
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def write_atomically(path: Path, *data: bytes | memoryview, mode: int = 0o666) -> None:
    """Replace a file as a whole: nobody reads half of it, whatever is killed or loses its power.

    Args:
        data: Its content, in one or more pieces.
        mode: Its permissions, less those that the process's mask takes.
    """
    with _written_aside(path, *data, mode=mode) as temporary:
        temporary.replace(path)


def create_atomically(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Make a file as a whole, or raise FileExistsError: of several who try at once one succeeds."""
    with _written_aside(path, data, mode=mode) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: nothing but a kill leaves half a file
            with open(path, "xb", opener=partial(os.open, mode=mode)) as stream:
                stream.write(data)


@contextmanager
def _written_aside(path: Path, *data: bytes | memoryview, mode: int) -> Iterator[Path]:
    """Give a block the temporary file that holds the data, to be given its name."""
    # Not by process id: two hosts that share the folder have the same ones.
    temporary = path.with_name(f".{path.name[:50]}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as stream:
            stream.writelines(data)
            stream.flush()
            os.fsync(stream.fileno())
            now = os.fstat(stream.fileno()).st_mtime
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    # Files of killed processes, by the file system's own clock, which may be another machine's.
    for left in path.parent.iterdir():
        if _TEMPORARY.fullmatch(left.name):
            with suppress(OSError):  # another process has removed it, or may alone
                if left.stat().st_mtime < now - STALE_AFTER:
                    left.unlink()


def sync_folder(path: Path) -> None:
    """Bring a new or renamed file's directory entry to the disk, where the system can."""
    with suppress(OSError):  # Windows does not open folders, nor do all network file systems sync
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def try_lock(stream: IO[Any], *, wait: bool = False) -> bool:
    """Lock an open file until it is closed; return False where another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows: who starts two at once there has to know
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a network file system without locks
        pass
    return True


def given_path(given: str | os.PathLike[str], what: str, *, room: int = 0) -> Path:
    """Return a path that somebody has given: ``~`` and ``~user`` are home folders.

    Args:
        what: The key or the argument that gives it, for messages.
        room: How many bytes the names need that are to lie below it.
    """
    text = os.fspath(given)
    try:
        path = Path(text).expanduser()
        whole = os.fsencode(path.absolute())
        if b"\0" in whole:
            raise ValueError("it has a NUL character")
        if len(whole) + room > MOST_BYTES_OF_A_PATH:
            raise ValueError(f"it is longer than {MOST_BYTES_OF_A_PATH - room} bytes")
        if any(len(name) > MOST_BYTES_OF_A_NAME for name in whole.split(b"/")):
            raise ValueError(f"one of its names is longer than {MOST_BYTES_OF_A_NAME} bytes")
        return path
    except RuntimeError:
        problem = f"there is no home folder of {text.partition('/')[0]!r} on this machine"
    except UnicodeEncodeError:
        problem = f"file names here are in {sys.getfilesystemencoding()}, which lacks a character"
    except ValueError as error:
        problem = str(error)
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    raise ConfigurationError(f"{what} is {shown!r}: {problem}")


def near_path(path: Path, found: Iterable[Path] | None = None) -> str:
    """Return "; did you mean PATH?" for the nearest of some paths (None: of those beside it)."""
    beside = path.parent.glob("[!.]*") if found is None else found
    # Endings are alike in all names; of equal stems one with the same ending is meant.
    stems = {each.stem: each for each in sorted(beside, key=lambda p: p.suffix == path.suffix)}
    guess = nearest(path.stem, stems)
    return f"; did you mean {stems[guess]}?" if guess else ""


def folder_name_problem(name: str) -> str | None:
    """Return why a text cannot be the name of one folder, below another one; None if it can."""
    problems = {
        "it is empty": not name.strip(),
        "it begins or ends with a space": name != name.strip(),
        "it means another folder": name in (".", ".."),
        "it holds a slash, a backslash or a control character": any(
            character in "/\\" or not character.isprintable() for character in name
        ),
        "it begins with ~, which means a home folder": name.startswith("~"),
        f"it is longer than {MOST_BYTES_OF_A_NAME} bytes": (
            len(name.encode(errors="surrogatepass")) > MOST_BYTES_OF_A_NAME
        ),
    }
    return next((problem for problem, found in problems.items() if found), None)
