"""Files that are either there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file as a whole: whoever reads it meets the old one or the new one.

    The data are on the disk before the name is: a run killed at any moment, or a machine that loses
    its power, leaves no half file.

    Raises:
        OSError: The file cannot be written; the old one, if any, is still there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring a new or renamed file's directory entry to the disk, where the system can."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # Windows does not open folders
        return
    try:
        os.fsync(descriptor)
    except OSError:  # nor does every network file system sync them
        pass
    finally:
        os.close(descriptor)
