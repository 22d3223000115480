"""The rounds of a run: a line of JSON each, appended as the round ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from bfl.errors import DataError
from bfl.experiments.results.files import CORRUPT, Files, plain
from bfl.files import sync_folder
from bfl.texts import from_json

ROUNDS = "rounds.jsonl"

PER_CLIENT = "per-client"
"""The key of a round's line that has one entry for each client."""


def append_round(files: Files, entry: Mapping[str, Any]) -> None:
    """Append one round's line, on the disk when this returns.

    A torn last line, of a run that was killed while it wrote, is cut off first: appended to, it
    would spoil the new line as well.

    Raises:
        DataError: An earlier line is corrupt.
        RunError: The file cannot be written.
    """
    line = (json.dumps(plain(entry)) + "\n").encode()
    kept, _ = whole_rounds(files)
    with files.writing(ROUNDS) as path:
        created = not path.exists()
        with path.open("ab") as stream:
            stream.truncate(len(kept))
            if kept and not kept.endswith(b"\n"):
                line = b"\n" + line
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        if created:
            sync_folder(files.path)


def keep_rounds(files: Files, last: int) -> None:
    """Drop the rounds after ``last``.

    Raises:
        DataError: Another line than the last is corrupt.
        RunError: The file cannot be written.
    """
    _, entries = whole_rounds(files)
    write_rounds(files, [entry for entry in entries if entry["round"] <= last])


def write_rounds(files: Files, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write all lines anew.

    Raises:
        RunError: The file cannot be written.
    """
    files.write_lines(ROUNDS, [json.dumps(plain(entry)) for entry in entries])


def whole_rounds(files: Files) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the file up to its last whole line, and the entries of its lines.

    Raises:
        DataError: Another line than the last is corrupt.
    """
    path = files.path / ROUNDS
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return b"", []
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(_entry(line))
        except CORRUPT as error:
            if number == len(lines):
                lines.pop()
                break
            raise DataError(f"{path}, line {number}: not a round ({error})") from error
    return b"".join(lines), entries


def _entry(line: bytes) -> dict[str, Any]:
    entry = from_json(line)
    if not isinstance(entry, dict) or "round" not in entry:
        raise ValueError("expected a JSON object with the key 'round'")
    if not isinstance(entry.get("seconds", 0.0), int | float):
        raise ValueError(f"seconds is {entry['seconds']!r}; expected a number")
    return entry
