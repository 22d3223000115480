"""A round's updates: read as replies come, and handed on in the order of partition ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from flwr.app import Message

from bfl.federation.wire import RUN_CANNOT_GO_ON
from strategies.updates import ClientUpdate, RefusedUpdateError

Read = Callable[[Message, int], ClientUpdate]


class Intake:
    """Takes in the replies of one round, each of which it reads, checks and lets go at once.

    An update is handed on as soon as all clients before it have been heard of. So what is held is
    what has come out of order, and nobody needs to hold all updates of a round.

    Args:
        partition_ids: The clients that were asked, sorted.
        partition_of: The partition id that a node plays.
        read: Reads and checks a reply of a client; raises RefusedUpdateError.
        warn: Told the client and the reason when it has failed or its update is refused.

    Attributes:
        refused: How many updates were refused.
        lost: How many clients have failed because what they kept is lost.
    """

    def __init__(
        self,
        partition_ids: Sequence[int],
        partition_of: Callable[[int], int],
        read: Read,
        warn: Callable[[int, str], None],
    ) -> None:
        self.refused = 0
        self.lost = 0
        self._partition_ids = partition_ids
        self._partition_of = partition_of
        self._read = read
        self._warn = warn

    def updates(self, replies: Iterable[Message]) -> Iterator[ClientUpdate]:
        """Yield the usable updates, in the order of partition ids."""
        held: dict[int, ClientUpdate | None] = {}
        following = deque(self._partition_ids)
        for reply in replies:
            partition_id = self._partition_of(reply.metadata.src_node_id)
            held[partition_id] = self._usable(reply, partition_id)
            while following and following[0] in held:
                yield from _handed_on(held.pop(following.popleft()))
        for partition_id in sorted(held):  # some have not been heard of at all
            yield from _handed_on(held.pop(partition_id))

    def _usable(self, reply: Message, partition_id: int) -> ClientUpdate | None:
        """Return the update in a reply, or None and a warning if there is none that can be used."""
        if reply.has_error():
            self.lost += reply.error.code == RUN_CANNOT_GO_ON
            self._warn(partition_id, f"failed: {reply.error.reason}")
            return None
        try:
            return self._read(reply, partition_id)
        except RefusedUpdateError as error:
            self.refused += 1
            self._warn(partition_id, f"update refused: {error}")
            return None


def _handed_on(update: ClientUpdate | None) -> Iterator[ClientUpdate]:
    """Yield an update, if there is one; nobody holds it here while the next is waited for."""
    if update is not None:
        yield update
