"""Report from a study's process to the one that watches it: its current run, and its end.

The two share a page of memory, which outlives whatever may end the one process without a word.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field

_SIZE = 4096
_LENGTH = 4


@dataclass
class Watched:
    """State of a study's process, seen from both sides of a fork.

    Attributes:
        died: Runs in which an earlier process has died, with the reason.
    """

    died: dict[str, str] = field(default_factory=dict)
    _page: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, _SIZE))

    def begins(self, run: str) -> None:
        """Let it be known that a run begins."""
        self._write({"run": run})

    def ends(self) -> None:
        """Let it be known that the run is over."""
        self._write({})

    def over(self) -> None:
        """Let it be known that the command has come to its end, whatever that is."""
        self._write({"over": True})

    @property
    def run(self) -> str:
        """The run that the process is in, or was in when it ended; empty: none."""
        return str(self._read().get("run", ""))

    @property
    def is_over(self) -> bool:
        """True if the command has come to its end."""
        return bool(self._read().get("over"))

    def _write(self, state: Mapping[str, object]) -> None:
        data = json.dumps(state).encode()
        # The length last: who reads after a death meets the old state or the new one.
        self._page[:_LENGTH] = bytes(_LENGTH)
        self._page[_LENGTH : _LENGTH + len(data)] = data
        self._page[:_LENGTH] = len(data).to_bytes(_LENGTH, "little")

    def _read(self) -> dict[str, object]:
        length = int.from_bytes(self._page[:_LENGTH], "little")
        content = json.loads(self._page[_LENGTH : _LENGTH + length]) if length else {}
        return dict(content)


_here: list[Watched] = []


def take_up(watched: Watched) -> None:
    """Have this process let another one know what it does."""
    _here[:] = [watched]


def watched_process() -> Watched:
    """Return what this process tells; nobody may be listening."""
    if not _here:
        _here.append(Watched())
    return _here[0]
