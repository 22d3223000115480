"""Flower's SuperNode, whose loop looks for work more often; it takes the same arguments.

It imports nothing of bfl: the process that plays a client's tasks takes it as a file.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

PULL_BACKOFF = 0.1
"""Seconds until an object that is still on its way is asked for again; Flower: 1."""

LEAST, SHARE, REPLY_LOOK = 0.25, 0.1, 0.05
"""A SuperNode's pause between looks for a message is a tenth of the time since the last one, in
seconds from 0.25 to Flower's 3; that for the reply of its own process 0.05, Flower's 0.5."""


def quick_pulls() -> None:
    """Have Flower's functions of this process ask sooner for objects that are on their way."""
    transfers = importlib.import_module("flwr.supercore.inflatable.inflatable_utils")
    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        getattr(transfers, name).__kwdefaults__["initial_backoff"] = PULL_BACKOFF


class Pauses:
    """In the place of the module ``time`` in the loop of a SuperNode."""

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self._worked = clock()

    def sleep(self, seconds: float) -> None:
        """Wait shorter than Flower, which waits 0.5 s at most for a reply, more for a message."""
        if seconds <= 0.5:
            self._sleep(min(seconds, REPLY_LOOK))
            self._worked = self._clock()
            return
        self._sleep(min(seconds, max(LEAST, SHARE * (self._clock() - self._worked))))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def main() -> None:
    """Run the SuperNode."""
    quick_pulls()
    loop: Any = importlib.import_module("flwr.supernode.start_client_internal")
    loop.time = Pauses()
    command: Any = importlib.import_module("flwr.supernode.cli.flower_supernode")
    command.flower_supernode()


if __name__ == "__main__":
    main()
