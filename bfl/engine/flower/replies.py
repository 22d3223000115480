"""Replies of a deployment's clients, refused while they come where they are larger than any can be.

Flower's grid pulls a message in pieces until all are in memory, however many its sender has named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any


@contextmanager
def replies_up_to(most_bytes: int) -> Iterator[None]:
    """Have Flower's grid refuse messages with more bytes, whose senders have failed then.

    No more of such a message is in memory than these bytes and a piece of each thread that pulls.
    A simulation's messages lie in memory already, and none is refused.

    Args:
        most_bytes: Of one message.
    """
    grid: Any = sys.modules.get("flwr.superlink.grid.http_grid")
    if grid is None:
        yield
        return
    pull = grid.pull_objects

    def pull_some(object_ids: Sequence[str], pull_object_fn: Callable[[str], bytes]) -> Any:
        come, counting = 0, Lock()

        def counted(object_id: str) -> bytes:
            nonlocal come
            piece = pull_object_fn(object_id) if come <= most_bytes else b""
            with counting:
                come += len(piece)
            if come > most_bytes:
                reason = f"the message has more than {most_bytes:,} bytes, the most of a reply here"
                raise grid.ObjectPullError(object_id, reason)
            return piece

        return pull(object_ids, counted)

    grid.pull_objects = pull_some
    try:
        yield
    finally:
        grid.pull_objects = pull
