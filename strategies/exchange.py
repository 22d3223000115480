"""Messages out, replies in: handed on as they come, and asked for again when they are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from flwr.app import Error, Message
from flwr.serverapp import Grid

from bfl.engine.flower import NO_REPLY, poll_interval

POLLING_SHARE = 0.1
"""The greatest share of the time that is spent on looking for replies.

Looking for the replies to M messages takes time in proportion to M, in a simulation of the process
that also hands the messages out.
"""

WAITING_SHARE = 0.02
"""The share of the time since the last reply that a pause takes, so that whoever trains for seconds
is not looked for two hundred times in each."""

LONGEST_PAUSE = 0.2
"""Seconds between looks at most: where a look brings the replies along, it takes as long as they
are large."""


def exchange(grid: Grid, messages: Sequence[Message], silence: float) -> Iterator[Message]:
    """Send messages and yield the replies as they come.

    Args:
        grid: Flower's grid.
        messages: What is sent.
        silence: Seconds without any reply after which the rest is given up. It is not the whole
            time: where few processes play many clients, replies come one after the other.

    Raises:
        RunError: The engine has died.
    """
    pending = set(grid.push_messages(messages))
    interval = poll_interval(grid)
    heard = time.monotonic()
    while pending:
        asked = time.monotonic()
        replies = list(grid.pull_messages(pending))
        took = time.monotonic() - asked
        pending.difference_update(reply.metadata.reply_to_message_id for reply in replies)
        answered = bool(replies)
        while replies:
            yield replies.pop(0)  # and keep none of them while waiting for the next
        if answered:
            heard = time.monotonic()
        elif time.monotonic() - heard > silence:
            return
        if pending and interval:
            waited = time.monotonic() - heard
            pause = max(took / POLLING_SHARE, waited * WAITING_SHARE)
            time.sleep(max(interval, min(pause, LONGEST_PAUSE)))


def exchange_with_retries(
    grid: Grid,
    messages: Sequence[Message],
    *,
    silence: float,
    retries: int,
    enough: Callable[[int], bool],
    report: Callable[[int, str], None],
) -> Iterator[Message]:
    """Send messages and yield one reply for each; ask nodes again that failed, if too few did not.

    A client's work is a function of the round and its partition, so one that is asked again gives
    what it would have given, and those that have replied are not asked again.

    Replies are yielded as they come, and an error as soon as its node will not be asked again.

    Args:
        grid: Flower's grid.
        messages: One for each node.
        silence: See ``exchange``.
        retries: How often those that failed are asked again.
        enough: Whether so many replies are enough to go on without the rest.
        report: Told the node and the reason of each failure after which the node is asked again.

    Raises:
        RunError: The engine has died.
    """
    asked = {message.metadata.dst_node_id: message for message in messages}
    good = 0
    for attempt in range(retries + 1):
        again = [_copy(message) if attempt else message for message in asked.values()]
        failed: dict[int, Message] = {}
        for reply in exchange(grid, again, silence):
            node = reply.metadata.src_node_id
            if reply.has_error():
                failed[node] = reply
            else:
                del asked[node]
                good += 1
                yield reply
            if attempt == retries or enough(good):
                yield from _settled(failed, asked)
        for node, message in asked.items():
            failed.setdefault(node, _lost(message, silence))
        if attempt == retries or enough(good):
            yield from _settled(failed, asked)
            return
        for node, reply in failed.items():
            report(node, str(reply.error.reason))


def _settled(failed: dict[int, Message], asked: dict[int, Message]) -> Iterator[Message]:
    """Yield the errors of nodes that will not be asked again, and forget both."""
    for node in list(failed):
        del asked[node]
        yield failed.pop(node)


def _lost(message: Message, silence: float) -> Message:
    reason = f"no reply for {silence:g} s (client-timeout)"
    return Message(Error(code=NO_REPLY, reason=reason), reply_to=message)


def _copy(message: Message) -> Message:
    """Return a message like one that was sent: Flower gives each message one id and one life."""
    return Message(
        message.content,
        message.metadata.dst_node_id,
        message.metadata.message_type,
        group_id=message.metadata.group_id,
    )
