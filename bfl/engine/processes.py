"""The processes that this one has started, directly or not, and their end."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

WITH_PARENT = Path(__file__).with_name("with_parent.py")


def with_parent(*words: str | Path) -> list[str]:
    """Return a command as one that ends with this process, also when this one is killed (Linux).

    Start it from the main thread: the kernel takes the end of the thread for the process's.

    Args:
        words: An executable's absolute path and its arguments.
    """
    return [sys.executable, "-I", "-S", str(WITH_PARENT), str(os.getpid()), *map(str, words)]


class StoppedWhenLeft(ABC):
    """Context manager that ends its processes when its ``with`` block ends, however it does."""

    @abstractmethod
    def stop(self) -> None:
        """End what has been started; nothing where that has been done."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def descendants() -> list[psutil.Process]:
    """Return the processes started by this one, by those, and so on; none where that is unknown."""
    with suppress(psutil.Error, OSError):
        return list(psutil.Process().children(recursive=True))
    return []


def kill(processes: Iterable[psutil.Process]) -> None:
    """End processes at once, those that are still there."""
    for process in processes:
        with suppress(psutil.Error, OSError):
            process.kill()
