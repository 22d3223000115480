"""Messages out, replies in: collected as they come, and asked for again when they are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from bfl.engine.health import raise_if_dead


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
    interval = float(getattr(grid, "pull_interval", 0.05))
    heard = time.monotonic()
    while pending:
        replies = list(grid.pull_messages(pending))
        for reply in replies:
            pending.discard(reply.metadata.reply_to_message_id)
            heard = time.monotonic()
            yield reply
        if not pending or time.monotonic() - heard > silence:
            return
        raise_if_dead()
        if not replies:
            time.sleep(interval)


def exchange_with_retries(
    grid: Grid,
    messages: Sequence[Message],
    *,
    silence: float,
    retries: int,
    enough: Callable[[int], bool],
    report: Callable[[int, str], None],
) -> list[Message]:
    """Send messages and return the replies; ask those nodes again that failed, if too few did not.

    A client's work is a function of the round and its partition, so one that is asked again gives
    what it would have given, and those that have replied are not asked again.

    Args:
        grid: Flower's grid.
        messages: One for each node.
        silence: See ``exchange``.
        retries: How often those that failed are asked again.
        enough: Whether so many replies are enough to go on without the rest.
        report: Told, for each failure, the node and the reason.

    Returns:
        The replies without an error.

    Raises:
        RunError: The engine has died.
    """
    asked = {message.metadata.dst_node_id: message for message in messages}
    good: list[Message] = []
    for attempt in range(retries + 1):
        again = [_copy(message) if attempt else message for message in asked.values()]
        lost = f"no reply for {silence:g} s (client-timeout)"
        failed = dict.fromkeys(asked, lost)
        for reply in exchange(grid, again, silence):
            node = reply.metadata.src_node_id
            if reply.has_error():
                failed[node] = str(reply.error.reason)
            else:
                good.append(reply)
                failed.pop(node, None)
                asked.pop(node, None)
        for node, reason in failed.items():
            report(node, reason)
        if not asked or enough(len(good)):
            break
    return good


def _copy(message: Message) -> Message:
    """Return a message like one that was sent: Flower gives each message one id and one life."""
    return Message(
        message.content,
        message.metadata.dst_node_id,
        message.metadata.message_type,
        group_id=message.metadata.group_id,
    )
