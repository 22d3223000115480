"""Files that are written whole or not at all, files of others, and the paths that users give."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from bfl.errors import ConfigurationError, nearest

LARGEST = 2**30
"""The most bytes of a file that are read as a whole."""


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
    # Not by process id: two hosts that share the folder have the same ones.
    temporary = path.with_name(f".{path.name[:50]}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as stream:
            stream.writelines(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring a new or renamed file's directory entry to the disk, where the system can."""
    with suppress(OSError):  # Windows does not open folders, nor do all network file systems sync
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def try_lock(stream: IO[Any], *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False where another process has it.

    Shared locks exclude only those that are not.
    """
    try:
        import fcntl
    except ImportError:  # Windows: who starts two at once there has to know
        return True
    try:
        fcntl.flock(stream, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a network file system without locks
        pass
    return True


def given_path(given: str | os.PathLike[str], what: str) -> Path:
    """Return a path that somebody has given: ``~`` and ``~user`` are home folders.

    Args:
        what: The key or the argument that gives it, for messages.
    """
    text = os.fspath(given)
    try:
        path = Path(text).expanduser()
        whole = os.fsencode(path.absolute())
        if b"\0" not in whole and len(whole) < 4096 and len(max(whole.split(b"/"), key=len)) < 256:
            return path
        problem = "it has a NUL character, a name of more than 255 bytes, or 4,096 bytes in all"
    except RuntimeError:
        problem = f"there is no home folder of {text.partition('/')[0]!r} on this machine"
    except UnicodeEncodeError:
        problem = f"file names here are in {sys.getfilesystemencoding()}, which lacks a character"
    raise ConfigurationError(f"{what} is {text[:80]!r}: {problem}")


def near_path(path: Path, found: Iterable[Path] | None = None) -> str:
    """Return "; did you mean PATH?" for the nearest of some paths (None: of those beside it)."""
    beside = path.parent.glob("[!.]*") if found is None else found
    # Endings are alike in all names; of equal stems one with the same ending is meant.
    stems = {each.stem: each for each in sorted(beside, key=lambda p: p.suffix == path.suffix)}
    guess = nearest(path.stem, stems)
    return f"; did you mean {stems[guess]}?" if guess else ""


def folder_name_problem(name: str) -> str | None:
    """Return why a text cannot be the name of one folder, below another one; None if it can."""
    if not name.strip(" .") or name != name.strip():
        return "it is empty, begins or ends with a space, or means another folder"
    if "/" in name or "\\" in name or not name.isprintable() or name.startswith("~"):
        return "it holds a slash, a backslash or a control character, or begins with ~"
    return None
