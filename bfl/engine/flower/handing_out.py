"""Flower's engine hands out a round's messages in time proportional to their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

HANDING_OUT = (0.005, 0.025)
"""Seconds between looks for messages to hand out: after the last ones, and after a long time."""


@contextmanager
def handed_out_at_once() -> Iterator[None]:
    """Have Flower's engine hand out a round's messages in time proportional to their number.

    Its own loop asks for the messages of one node after the other, and for each goes through all
    messages that have not been answered yet: a hundred times the work with ten times the clients,
    in the process, and under the lock, through which everything else has to go. From some hundred
    clients on the actors wait for it. Here all that are new are handed out together.
    """
    from flwr.server.superlink.fleet.vce import vce_api

    before = vce_api.add_messages_to_queue
    vce_api.add_messages_to_queue = hand_out
    try:
        yield
    finally:
        vce_api.add_messages_to_queue = before


def hand_out(state: Any, queue: Any, nodes_mapping: Mapping[int, int], f_stop: Any) -> None:
    """Put new messages into the queue of the engine's workers until the run stops.

    Args:
        state: Flower's in-memory state.
        queue: What the workers take messages from.
        nodes_mapping: Partition id by node id.
        f_stop: Set when the run stops.
    """
    shortest, longest = HANDING_OUT
    pause = shortest
    while not f_stop.is_set():
        new = new_messages(state)
        for message in new:
            queue.put(message)
        pause = shortest if new else min(pause * 1.02, longest)
        f_stop.wait(pause)


def new_messages(state: Any) -> list[Any]:
    """Return the messages that have not been handed out, and mark them as Flower does."""
    from flwr.supercore.date import now

    def is_new(message: Any) -> bool:
        return not message.metadata.delivered_at

    with state.lock:
        # All are handed out at once, so the new ones are at the end.
        new = list(takewhile(is_new, reversed(state.message_ins_store.values())))[::-1]
        for message in new:
            message.metadata.delivered_at = now().isoformat()
    return new
