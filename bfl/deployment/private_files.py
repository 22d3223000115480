"""Files that only their owner may read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from bfl.errors import DataError
from bfl.files import sync_folder

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def write_private(path: Path, data: bytes) -> None:
    """Write a file as a whole; at no moment may anybody but its owner read it.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def private_folder(path: Path) -> Path:
    """Return a folder that only its owner may enter, made if it is not there."""
    path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    path.chmod(PRIVATE_FOLDER)
    return path


def check_private(path: Path, node: str) -> None:
    """Refuse a private file that is missing, or that others may read or write.

    Args:
        path: The file.
        node: Whose file it is, for the message.

    Raises:
        DataError: It is missing, or others have rights to it.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise DataError(f"{node}: cannot read {path}: {error.strerror or error}") from error
    if mode & 0o077:
        raise DataError(
            f"{node}: others may read or write {path} (mode {mode:03o}); allowed: 600, as by "
            f"chmod 600 {path}"
        )
