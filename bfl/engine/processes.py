"""The processes that this one has started, directly or not, and their end."""

from __future__ import annotations

import os
import signal
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

WITH_PARENT = Path(__file__).with_name("with_parent.py")


def with_parent(*words: str | Path) -> list[str]:
    """Return a command as one that ends with this process, also when this one is killed (Linux).

    Args:
        words: The command, which begins with an executable's absolute path. It is to be started
            from the main thread: the kernel takes the end of the thread for the process's.
    """
    command = [str(word) for word in words]
    return [sys.executable, "-I", "-S", str(WITH_PARENT), str(os.getpid()), *command]


class StoppedWhenLeft(ABC):
    """Context manager that ends its processes when its ``with`` block ends, however it does."""

    @abstractmethod
    def stop(self) -> None:
        """End what has been started; nothing where that has been done."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


@dataclass(frozen=True)
class Process:
    """A process of this machine; its id alone may come to name another one.

    Attributes:
        started: When it has been started, in the system's ticks since its boot.
    """

    pid: int
    started: int


def descendants() -> list[Process]:
    """Return the processes started by this one, by those, and so on; none where that is unknown."""
    children: dict[int, list[Process]] = defaultdict(list)
    for pid in _pids():
        known = _parent_and_start(pid)
        if known is not None:
            children[known[0]].append(Process(pid, known[1]))
    found: list[Process] = []
    left = [os.getpid()]
    while left:
        young = children.pop(left.pop(), [])
        found += young
        left += [process.pid for process in young]
    return found


def kill(processes: Iterable[Process]) -> None:
    """End processes at once, those that are still there."""
    for process in processes:
        known = _parent_and_start(process.pid)
        if known is not None and known[1] == process.started:
            with suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)


def _pids() -> list[int]:
    with suppress(OSError):
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return []  # not Linux


def _parent_and_start(pid: int) -> tuple[int, int] | None:
    """Return the id of a process's parent and when it was started; None when it is not there."""
    with suppress(OSError, ValueError, IndexError):
        # The name, in parentheses, may hold anything: what counts comes after it.
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        if fields[0] != "Z":
            return int(fields[1]), int(fields[19])
    return None
