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

LEAST, SHARE = 0.25, 0.1
"""A SuperNode's pause between looks for a message, Flower: 3 s: a tenth of the time for which there
has been none, so that a server with many nodes that wait is not asked all the time."""

REPLY_LOOK = 0.05
"""Seconds between a SuperNode's looks for the reply of its own process; Flower: 0.5."""


def quick_pulls() -> None:
    """Have Flower's functions of this process ask sooner for objects that are on their way."""
    transfers = importlib.import_module("flwr.supercore.inflatable.inflatable_utils")
    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        getattr(transfers, name).__kwdefaults__["initial_backoff"] = PULL_BACKOFF


class Pauses:
    """In the place of the module ``time`` in the loop of a SuperNode.

    Args:
        sleep: Waits for some seconds.
        clock: Tells the time in seconds.
    """

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self._worked = clock()

    def sleep(self, seconds: float) -> None:
        """Wait, but not as long as Flower means to.

        Args:
            seconds: What Flower waits: 0.5 or less for a reply, more for a message.
        """
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
