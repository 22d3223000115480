"""Numbered snapshots of named arrays: written as a whole, checked when read, the last few kept."""

from __future__ import annotations

import hashlib
import io
import re
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.archives import ArrayFile, open_regular
from bfl.errors import DataError, RunError
from bfl.federation.parts import Arrays
from bfl.files import write_atomically

_DIGEST = 2 * hashlib.sha256().digest_size
_FILE = re.compile(r"round-(\d{6,})\.(\d{6,})\.snapshot")


class _Entry(NamedTuple):
    """A snapshot's file: its place in the order of writing, and its round."""

    order: int
    server_round: int
    path: Path


class Snapshots:
    """The snapshots of one owner, in a folder of its own, numbered by round.

    A file is the SHA-256 of its content, a new line, and the content, a NumPy archive. Its name has
    the round and, behind it, its place in the order of writing, by which the last few are kept: an
    owner that begins again at a low round does not lose what it has just written.

    Args:
        folder: Where they lie; it is made when the first one is saved.
    """

    def __init__(self, folder: Path, kept: int = 2) -> None:
        self.folder = folder
        self.kept = kept

    def save(self, server_round: int, arrays: Arrays) -> None:
        """Write the snapshot of a round, or raise RunError, and drop those beyond the last few."""
        buffer = io.BytesIO()
        np.savez(buffer, **dict[str, Any](arrays))
        content = buffer.getbuffer()
        path = self.folder
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = self._entries()
            order = before[-1].order + 1 if before else 1
            path = self.folder / f"round-{server_round:06d}.{order:06d}.snapshot"
            digest = hashlib.sha256(content).hexdigest().encode() + b"\n"
            write_atomically(path, digest, content, mode=0o600)
            others = [entry for entry in before if entry.server_round != server_round]
            replaced = [entry for entry in before if entry.server_round == server_round]
            for old in [*replaced, *others[: max(0, len(others) + 1 - self.kept)]]:
                old.path.unlink(missing_ok=True)
            for left in self.folder.glob(".*.tmp"):  # by writers that were killed
                with suppress(FileNotFoundError):
                    if left.stat().st_mtime < time.time() - 3600:
                        left.unlink()
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error

    def latest(self) -> tuple[int, dict[str, npt.NDArray[Any]]] | None:
        """Return the sound snapshot that was written last, and its round; None if there is none."""
        for entry in reversed(self._entries()):
            try:
                return entry.server_round, _read(entry.path)
            except DataError as error:
                warnings.warn(f"{error}; going back to the one before it", stacklevel=2)
        return None

    def at(self, server_round: int) -> dict[str, npt.NDArray[Any]] | None:
        """Return the snapshot of a round, None if there is none; DataError if it is damaged."""
        entries = [entry for entry in self._entries() if entry.server_round == server_round]
        return _read(entries[-1].path) if entries else None

    def drop_between(self, after: int, before: int) -> None:
        """Remove the snapshots of the rounds that lie between two rounds, both exclusive."""
        for entry in self._entries():
            if after < entry.server_round < before:
                entry.path.unlink(missing_ok=True)

    def _entries(self) -> list[_Entry]:
        """Return the files in the order of writing."""
        if not self.folder.is_dir():
            return []
        found = ((path, _FILE.fullmatch(path.name)) for path in self.folder.iterdir())
        return sorted(_Entry(int(m[2]), int(m[1]), path) for path, m in found if m)


def _read(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with open_regular(path) as stream:
            digest = stream.readline(_DIGEST + 1)
            begins = stream.tell()
            if hashlib.file_digest(stream, "sha256").hexdigest().encode() + b"\n" != digest:
                raise ValueError("its SHA-256 does not match its content")
            return dict(ArrayFile(path, stream, begins))
    except (OSError, ValueError, DataError) as error:
        raise DataError(f"{path} is damaged ({error})") from error
