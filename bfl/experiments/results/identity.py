"""Identity of a run's folder: the run's key, its server's lock, and its partition's digest."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bfl.errors import ConfigurationError, DataError, RunError
from bfl.files import create_atomically, read_regular, try_lock

RUN_KEY, LOCK = "run-key", "run.lock"
"""Files of a run's folder."""

WHOLE = "whole-sha256"
"""The key of the digest of a partition whose numbers a private run's folder leaves out."""


def run_key(folder: Path) -> str:
    """Return the random key of the run in a folder, created at the first call.

    Nodes store their state of a run under it: a resumed run keeps its key, and a new run of the
    same name gets another one.
    """
    path = folder / RUN_KEY
    try:
        if not path.exists():
            with suppress(FileExistsError):
                create_atomically(path, f"{secrets.token_hex(16)}\n".encode(), 0o600)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    key = read_run_key(folder)
    if key is None:
        raise DataError(f"{path} is corrupt: expected 32 hexadecimal digits")
    return key


def read_run_key(folder: Path) -> str | None:
    """Return the key of the run in a folder; None without a key or a folder."""
    try:
        key = read_regular(folder / RUN_KEY).decode("ascii").strip()
    except (OSError, ValueError):
        return None
    return key if is_run_key(key) else None


def is_run_key(text: str) -> bool:
    """Return whether a text is the key of a run: 32 hexadecimal digits, a safe file name."""
    return len(text) == 32 and not set(text) - set("0123456789abcdef")


@contextmanager
def locked(folder: Path, who: str = "another server writes to") -> Iterator[None]:
    """Lock a run's folder, which is made, against other servers, of this machine or another one.

    A killed server releases the lock.

    Raises:
        ConfigurationError: Another server, which is named, has the lock; or it cannot be written.
    """
    path = folder / LOCK
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not through a link, which may lead to a file of somebody else's.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        stream = os.fdopen(os.open(path, flags, 0o600), "a+", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the run folder {folder}: {error.strerror or error}"
        ) from error
    with stream:
        if not try_lock(stream):
            stream.seek(0)
            raise ConfigurationError(
                f"{who} {folder}: {stream.read().strip() or 'unknown'}; wait "
                "for its end, or end it, or choose another name"
            )
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on host {socket.gethostname()}\n")
        stream.flush()
        yield


def without_numbers(partition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a private run's partition without clients' numbers, but with one digest of them."""
    kept = {key: partition[key] for key in ("sha256", "server") if key in partition}
    return {**kept, WHOLE: partition_digest(partition)}


def partition_digest(partition: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a partition's description, independent of the order of its keys."""
    text = json.dumps(partition, sort_keys=True, separators=(",", ":"))
    return str(partition.get(WHOLE) or hashlib.sha256(text.encode()).hexdigest())


def is_written_to(folder: Path) -> bool:
    """Return whether a process holds the lock of a run's folder; False if that is unknown."""
    try:
        import fcntl

        with (folder / LOCK).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # Windows; no such file; a file system without locks
        return False
    return False
