"""Messages out, replies in: handed on as they come, and asked for again when they are lost."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from flwr.app import DEFAULT_TTL, Error, Message
from flwr.serverapp import Grid

from bfl.engine.flower import NO_REPLY, is_simulation
from bfl.engine.flower.replies import Replies, UnusableReplyError
from bfl.errors import LostStateError
from bfl.federation.client_metrics import neutralized
from bfl.federation.wire import RUN_CANNOT_GO_ON
from bfl.printing import detail

T = TypeVar("T")

NO_REPLY_FOR = "no reply for"  # begins the reason of who has stopped answering


@dataclass
class UsableReplies:
    """Number of usable replies, and the number that is enough to go on without the rest.

    Whoever takes replies counts each before it takes the next.

    Attributes:
        lost: How many clients have lost what they kept, and will not reply to this round.
        left_out: Why the round is made without a client, by partition id.
    """

    needed: int
    found: int = 0
    lost: int = 0
    left_out: dict[int, str] = field(default_factory=dict)

    @property
    def enough(self) -> bool:
        """True if nobody needs to be asked again."""
        return self.found >= self.needed


def exchange_with_retries(
    grid: Grid,
    messages: Sequence[Message],
    *,
    silence: float,
    retries: int,
    usable: UsableReplies,
    report: Callable[[int, str], None] = lambda node, reason: None,
) -> Iterator[Message]:
    """Send messages and yield one reply for each; if too few are usable, ask again who has failed.

    A client's work is a function of the round and its partition, so one that is asked again gives
    what it would have given, and those that have replied are not asked again: usable or not.

    Replies are yielded as they come, and an error as soon as its node will not be asked again.

    Args:
        silence: See ``exchange``.
        retries: How often those that failed are asked again.
        report: Takes the node and the reason of each failure after which the node is asked again.
    """
    unanswered = {message.metadata.dst_node_id: message for message in messages}
    for attempt in range(retries + 1):
        failed: dict[int, Message] = {}
        for reply in exchange(grid, list(unanswered.values()), silence):
            if reply.has_error():
                failed[reply.metadata.src_node_id] = reply
            else:
                del unanswered[reply.metadata.src_node_id]
                yield reply
            while failed and (attempt == retries or usable.enough):
                node = next(iter(failed))
                del unanswered[node]
                yield failed.pop(node)
        for node, message in unanswered.items():
            reason = f"{NO_REPLY_FOR} {silence:g} s (client-timeout)"
            failed.setdefault(node, _failure(message, reason))
        if attempt == retries or usable.enough:
            yield from failed.values()
            return
        for node, reply in failed.items():
            report(node, str(reply.error.reason))
            sent = unanswered[node].metadata  # Flower gives each message one id and one life
            unanswered[node] = Message(
                unanswered[node].content, node, sent.message_type, group_id=sent.group_id
            )


def _failure(message: Message, reason: str, code: int = NO_REPLY) -> Message:
    return Message(Error(code=code, reason=neutralized(reason)), reply_to=message)


def exchange(grid: Grid, messages: Sequence[Message], silence: float) -> Iterator[Message]:
    """Send messages and yield the replies as they come, each from the node that was asked.

    Messages that Flower does not take are answered at once, by an error.

    Args:
        silence: Seconds without any reply after which the rest is given up. The total may be
            longer, as a process that plays many clients replies for one after the other.

    Raises:
        RunError: The engine has died, or a simulation's client cannot go on.
    """
    outstanding = Outstanding(grid)
    yield from outstanding.send(messages, silence)
    while outstanding.messages:
        replies = outstanding.replies()
        any_came = bool(replies)
        while replies:
            yield replies.pop(0)  # and keep none of them while waiting for the next
        if not any_came and outstanding.silence > silence:
            return
        if outstanding.messages:
            replied = len(messages) - len(outstanding.messages)
            detail(f"{replied} of {len(messages)} clients have replied")
            outstanding.pause()


POLLING_SHARE = 0.1
"""The greatest share of the time that is spent on looking for replies.

Looking for the replies to M messages takes time in proportion to M, in a simulation of the process
that also hands the messages out."""

WAITING_SHARE = 0.02
"""The share of the time since the last reply that a pause takes, so that whoever trains for seconds
is not looked for two hundred times in each."""

LONGEST_PAUSE = 0.2
"""Seconds between looks at most: where a look brings the replies along, it takes as long as they
are large."""

TIMES, ALLOWANCE = 8, 2**24
"""A reply has at most so many times the bytes of the arrays in the largest message sent, and so
many bytes more. What a method sends back at most is three numbers of 8 bytes for a mean of 4."""


class Outstanding:
    """Messages that have been sent to nodes and not been answered yet.

    A reply is known by the message that it answers. Flower answers by itself for a node that is
    gone, and as the source of such a reply it names its own node.
    """

    def __init__(self, grid: Grid) -> None:
        self.messages: dict[str, Message] = {}
        self._grid = grid
        self._replies = Replies(grid)
        self._last_reply = time.monotonic()
        self._look_seconds = 0.0
        self._most_bytes = ALLOWANCE
        self._patience = math.inf

    def send(self, messages: Sequence[Message], silence: float = 0.0) -> list[Message]:
        """Send messages; return errors for those that Flower has not taken.

        They are waited for ``silence`` seconds without any reply, see ``exchange``; 0: for good.
        """
        if not messages:
            return []
        for message in messages:
            # Flower answers by itself for a message whose life is over, and drops what comes then.
            # Each but the last reply may begin the silence anew. What a client that hangs has not
            # looked at does not wait for it for good.
            message.metadata.ttl = DEFAULT_TTL + silence * len(messages)
        self._last_reply = time.monotonic()
        self._patience = silence or math.inf
        largest = max(
            sum(record.count_bytes() for record in message.content.array_records.values())
            for message in messages
        )
        self._most_bytes = max(self._most_bytes, ALLOWANCE + TIMES * largest)
        taken = set(filter(None, self._grid.push_messages(messages)))
        refused = []
        for message in messages:
            # Flower sets the id while it sends, and leaves out, or empty, those not taken.
            message_id = message.metadata.message_id
            if message_id in taken:
                self.messages[message_id] = message
            else:
                refused.append(_failure(message, "Flower has not taken the message: node is gone"))
        return refused

    def replies(self) -> list[Message]:
        """Return the replies that have come; the source of each is the node that was asked.

        One that is no message, larger than any can be, or announced and not uploaded in time, is an
        error, and the others do not wait for it.
        """
        began, incoming = time.monotonic(), self._replies.coming.keys()
        before = set(incoming)
        looked = self._replies.look(self.messages.keys(), self._most_bytes, self._patience)
        self._look_seconds = time.monotonic() - began
        if looked or incoming - before:
            self._last_reply = time.monotonic()
        replies = []
        for message_id, reply in looked:
            # A client that is asked twice may answer twice; only the first answer finds a message.
            message = self.messages.pop(message_id, None)
            if message is None:
                continue
            node = message.metadata.dst_node_id
            if isinstance(reply, UnusableReplyError):
                replies.append(_failure(message, f"node {node}: {reply}"))
            elif reply.has_error():
                # A node of a deployment has no such power: it fails, and the others go on.
                if reply.error.code == RUN_CANNOT_GO_ON and is_simulation(self._grid):
                    raise LostStateError(neutralized(str(reply.error.reason)))
                replies.append(_failure(message, str(reply.error.reason), reply.error.code))
            elif reply.metadata.src_node_id != node:
                other = reply.metadata.src_node_id
                replies.append(_failure(message, f"node {other} has answered in its place"))
            else:
                replies.append(reply)
        return replies

    @property
    def silence(self) -> float:
        """Seconds since a message has been sent, or a reply has come or begun to come."""
        return time.monotonic() - self._last_reply

    def pause(self) -> None:
        """Wait until it is worth looking for replies again."""
        if self._replies.interval:
            pause = max(self._look_seconds / POLLING_SHARE, self.silence * WAITING_SHARE)
            time.sleep(max(self._replies.interval, min(pause, LONGEST_PAUSE)))


def name_nodes(replies: Iterable[Message], messages: Sequence[Message]) -> Iterator[Message]:
    """Yield replies that somebody else has collected, each from the node that was asked.

    Flower answers by itself for a node that is gone, and names its own node. What answers none of
    the messages is left out.
    """
    nodes = {message.metadata.dst_node_id for message in messages}
    asked = {message.metadata.message_id: message for message in messages}
    for reply in replies:
        if reply.metadata.src_node_id in nodes:
            yield reply
        elif message := asked.get(reply.metadata.reply_to_message_id):
            reason = reply.error.reason if reply.has_error() else "another node has answered"
            yield _failure(message, str(reason))
        del reply  # nobody holds it while the next is waited for


def in_order(
    replies: Iterable[Message],
    partition_ids: Sequence[int],
    partition_of: Callable[[int], int],
    read: Callable[[Message, int], T | None],
) -> Iterator[T]:
    """Yield clients' updates in the order of partition ids, each as early as it can be.

    A reply is read as it comes, and its update handed on as soon as all clients before it have been
    heard of. So what is held is what has come out of order, and nobody needs to hold all updates of
    a round.

    Args:
        partition_ids: The clients that were asked, sorted.
        read: Returns the update in a client's reply; None if there is none that can be used.
    """
    early: dict[int, T | None] = {}
    following = deque(partition_ids)
    for reply in replies:
        partition_id = partition_of(reply.metadata.src_node_id)
        early[partition_id] = read(reply, partition_id)
        del reply  # nobody holds it, or an update, while the next is waited for
        while following and following[0] in early:
            if (update := early.pop(following.popleft())) is not None:
                yield update
            del update
    for partition_id in sorted(early):  # some have not been heard of at all
        if (last := early.pop(partition_id)) is not None:
            yield last
        del last
