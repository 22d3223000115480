"""Numbered snapshots of named arrays: written as a whole, checked when read, the last few kept."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.errors import RunError
from bfl.files import write_atomically

Arrays = Mapping[str, npt.NDArray[Any]]
_FILE = re.compile(r"round-(\d{6,})\.snapshot")


class Snapshots:
    """The snapshots of one owner, in a folder of its own, numbered by round.

    A file is the SHA-256 of its content, a new line, and the content, a NumPy archive. A damaged
    one is passed over with a warning, and the one before it is used.

    Args:
        folder: Where they lie; it is made when the first one is saved.
        kept: How many are kept.
    """

    def __init__(self, folder: Path, kept: int = 2) -> None:
        self.folder = folder
        self.kept = kept

    def save(self, server_round: int, arrays: Arrays) -> None:
        """Write the snapshot of a round, and drop the oldest beyond those kept.

        Raises:
            RunError: It cannot be written; those of earlier rounds are still there.
        """
        buffer = io.BytesIO()
        named: dict[str, Any] = dict(arrays)
        np.savez(buffer, **named)
        content = buffer.getvalue()
        path = self._path(server_round)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
            for old in self.rounds()[: -self.kept]:
                self._path(old).unlink(missing_ok=True)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error

    def latest(self, before: int | None = None) -> tuple[int, dict[str, npt.NDArray[Any]]] | None:
        """Return the last sound snapshot and its round; None when there is none.

        Args:
            before: The round that it must be older than; None for any.
        """
        for server_round in reversed(self.rounds()):
            if before is not None and server_round >= before:
                continue
            try:
                return server_round, _read(self._path(server_round).read_bytes())
            except (OSError, ValueError) as error:
                warnings.warn(
                    f"{self._path(server_round)} is damaged ({error}); going back to the one "
                    "before it",
                    stacklevel=2,
                )
        return None

    def rounds(self) -> list[int]:
        """Return the rounds that have a snapshot, sound or not, ascending."""
        if not self.folder.is_dir():
            return []
        matches = (_FILE.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match.group(1)) for match in matches if match)

    def _path(self, server_round: int) -> Path:
        return self.folder / f"round-{server_round:06d}.snapshot"


def _read(data: bytes) -> dict[str, npt.NDArray[Any]]:
    digest, _, content = data.partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != digest:
        raise ValueError("its SHA-256 does not match its content")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
