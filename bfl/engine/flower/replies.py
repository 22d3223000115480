"""Replies of a deployment's clients: each comes by itself, and one that is none has a reason.

Flower's grid takes announced replies one after the other: it waits for what nobody uploads, holds
as many bytes as a sender has named, and raises for what is no message.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.app import Message

IN_MEMORY_INTERVAL = 0.005
"""Seconds between looks for replies in memory. With Flower's 0.1 s, half of a round of ten small
clients would be waiting."""

LOOK = 2.0
"""Seconds that a look takes for one reply at most, where others are on their way."""

LONGEST_REASON = 300
"""Characters of the reason why a reply is no message: Flower repeats what is in it."""


class UnusableReplyError(Exception):
    """A reply that cannot be taken; the message says why."""


Arrivals = list[tuple[str, "Message | UnusableReplyError"]]
"""Replies that have come, or why not, each with the id of the message that it answers."""


class Replies:
    """The replies to messages that have been pushed to one of Flower's grids.

    Those of a deployment are announced first, and then uploaded in pieces.

    Attributes:
        coming: The replies that are announced and not there, by the message that they answer.
        interval: Seconds to wait between looks.
    """

    def __init__(self, grid: Any) -> None:
        flower: Any = sys.modules.get("flwr.superlink.grid")
        self.coming: dict[str, _Reply] = {}
        self._grid = grid
        self._in_pieces = flower is not None and isinstance(grid, flower.HttpGrid)
        in_memory = flower is not None and isinstance(grid, flower.InMemoryGrid)
        self.interval = IN_MEMORY_INTERVAL if in_memory else getattr(grid, "pull_interval", 0.05)

    def look(self, message_ids: Collection[str], most_bytes: int, patience: float) -> Arrivals:
        """Return what has come since the last look, and wait for nothing.

        Args:
            most_bytes: The most of one reply that is held in memory, but for a piece or two.
            patience: Seconds from a reply's announcement to its end.
        """
        if not self._in_pieces:
            replies = self._grid.pull_messages(message_ids) if message_ids else []
            return [(reply.metadata.reply_to_message_id, reply) for reply in replies]
        # The SuperLink announces a reply once, and takes the message for unknown from then on.
        if unanswered := [each for each in message_ids if each not in self.coming]:
            self.coming |= _announced(self._grid, unanswered, most_bytes, patience)
        seconds = LOOK if len(self.coming) > 1 else math.inf
        arrivals: Arrivals = []
        for message_id, reply in list(self.coming.items()):
            try:
                if not reply.complete(time.monotonic() + seconds):
                    continue
                arrivals.append((message_id, reply.message()))
            except UnusableReplyError as error:
                arrivals.append((message_id, error))
            del self.coming[message_id]
        return arrivals


def _announced(
    grid: Any, message_ids: Sequence[str], most_bytes: int, patience: float
) -> dict[str, _Reply]:
    from flwr.proto import message_pb2, runtime_pb2
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf

    flower, run_id = grid._runtime_client, grid.run.run_id
    request = runtime_pb2.PullAppMessagesRequest()
    if hasattr(request, "message_ids"):  # Flower up to 1.42
        request.message_ids.extend(message_ids)
    else:
        request.reply_to_message_ids.vals.extend(message_ids)
    answer = flower.PullMessages(request)
    pull = make_pull_object_fn_protobuf(flower.PullObject, grid.node, run_id)
    replies = {}
    for each, tree in zip(answer.messages_list, answer.message_object_trees, strict=True):
        confirmation = message_pb2.ConfirmMessageReceivedRequest(
            node=grid.node, run_id=run_id, message_object_id=each.metadata.message_id
        )
        # A piece that several others have among their own stands there as often.
        pieces = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))[::-1]
        answers = each.metadata.reply_to_message_id
        confirm = partial(flower.ConfirmMessageReceived, confirmation)
        replies[answers] = _Reply(answers, pieces, pull, confirm, most_bytes, patience)
    return replies


@dataclass
class _Reply:
    """A reply that is announced.

    Attributes:
        answers: The id of the message that it answers, as the SuperLink has checked.
        pieces: The ids of its pieces, the message itself first, which is uploaded last.
        pull: Returns the bytes of a piece, or raises as Flower does.
        confirm: Lets the SuperLink forget the reply.
    """

    answers: str
    pieces: Sequence[str]
    pull: Callable[[str], bytes]
    confirm: Callable[[], Any]
    most_bytes: int
    patience: float
    began: float = field(default_factory=lambda: time.monotonic())
    pulled: dict[str, bytes] = field(default_factory=dict)
    counting: Lock = field(default_factory=Lock)
    size: int = 0

    def complete(self, until: float) -> bool:
        """Pull what is there, until a time of the monotonic clock; return whether that is all."""
        from flwr.supercore.inflatable import inflatable_utils as flower

        waits = Event()

        def pull(piece: str) -> bytes:
            if waits.is_set() or self.size > self.most_bytes or time.monotonic() > until:
                return b""
            try:
                content = self.pull(piece)
            except flower.ObjectUnavailableError:
                waits.set()
                return b""
            with self.counting:
                self.size += len(content)
            self.pulled[piece] = content
            return content

        first, *others = (i for i in self.pieces if i not in self.pulled)
        try:
            # As long as one is waited for, no threads are started.
            pull(first)
            if not waits.is_set():
                flower.pull_objects(others, pull)
        except flower.ObjectPullError as error:
            raise UnusableReplyError(f"its reply is not to be had: {error}") from error
        self._check_bytes(self.size)
        if len(self.pulled) == len(self.pieces):
            return True
        if time.monotonic() - self.began > self.patience:
            raise UnusableReplyError(
                f"its reply was announced, and has not come whole for {self.patience:g} s "
                "(client-timeout)"
            )
        return False

    def message(self) -> Message:
        """Return the message that all pieces make."""
        from flwr.app import Message
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        self.confirm()
        try:
            self._check_bytes(_array_bytes(self.pulled))
            reply: Any = inflate_object_from_contents(self.pieces[0], self.pulled)
            if not isinstance(reply, Message):
                raise TypeError(f"it is of type {type(reply).__name__}")
        except UnusableReplyError:
            raise
        except Exception as error:  # whatever Flower makes of bytes that a client has chosen
            reason = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
            raise UnusableReplyError(f"its reply is no message of Flower's: {reason}") from error
        if reply.metadata.reply_to_message_id != self.answers:
            raise UnusableReplyError("its reply says that it answers another message")
        set_message_id(reply, self.pieces[0])
        return reply

    def _check_bytes(self, size: int) -> None:
        if size > self.most_bytes:
            raise UnusableReplyError(
                f"its reply has more than {self.most_bytes:,} bytes, the most of a reply here"
            )


def _array_bytes(pieces: Mapping[str, bytes]) -> int:
    """Return how many bytes the arrays have that pieces make: one may name a piece many times."""
    size = 0
    for content in pieces.values():
        if content.startswith(b"Array "):
            head, _, body = content.partition(b"\0")
            children = head.decode().split(" ")[1].split(",")
            named = Counter[int](json.loads(body)["arraychunk_ids"])
            size += sum(len(pieces[children[at]]) * times for at, times in named.items())
    return size


def set_message_id(message: Any, message_id: str) -> None:
    """Give a message its id, as Flower's grids do: its metadata has no setter for it."""
    message.metadata.__dict__["_message_id"] = message_id
