"""Files that are either there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file as a whole: whoever reads it meets the old one or the new one.

    The data are on the disk before the name is: a run killed at any moment, or a machine that loses
    its power, leaves no half file.

    Raises:
        OSError: The file cannot be written; the old one, if any, is still there.
    """
    with _written_aside(path, data) as temporary:
        temporary.replace(path)


def create_atomically(path: Path, data: bytes) -> None:
    """Make a file that is not there yet, as a whole; of several who try at once one succeeds.

    Raises:
        FileExistsError: It is there already, and stays as it is.
        OSError: The file cannot be written.
    """
    with _written_aside(path, data) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: nothing but a kill leaves half a file
            with path.open("xb") as stream:
                stream.write(data)


@contextmanager
def _written_aside(path: Path, data: bytes) -> Iterator[Path]:
    """Give a block the temporary file that holds the data, to be given its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
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
