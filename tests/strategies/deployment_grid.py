"""A grid that behaves as Flower's does for real SuperNodes: late, lost, restarted and refused."""

from collections.abc import Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from bfl.engine.flower import new_run
from bfl.engine.serial import SerialGrid

SUPERLINK = 1
"""Flower's id of the SuperLink, by which it answers for nodes that are gone."""
NODE_UNAVAILABLE = 5
FIRST_ID = 1000


class DeploymentGrid(SerialGrid):
    """SuperNodes with ids of their own, which come and go.

    Flower answers with an error for ``dead`` nodes, and takes no message to ``unregistered`` ones;
    ``slow`` ones let so many looks for replies pass. ``asked`` has what was sent, by node and type.
    """

    pull_interval = 0.001

    def __init__(self, app: ClientApp, partitions: Iterable[int], num_partitions: int) -> None:
        super().__init__(app, 0, new_run({}), {})
        self.num_partitions = num_partitions
        self.online: set[int] = set()
        self.dead: set[int] = set()
        self.unregistered: set[int] = set()
        self.slow: dict[int, int] = {}
        self.asked: list[tuple[int, str]] = []
        for partition_id in partitions:
            self.start(partition_id)

    def start(self, partition_id: int, **config: Any) -> int:
        """Start a SuperNode without authentication; return its new id."""
        node = FIRST_ID + len(self._contexts)
        self._contexts[node] = Context(
            run_id=self._run.run_id,
            node_id=node,
            node_config={
                "partition-id": partition_id,
                "num-partitions": self.num_partitions,
                **config,
            },
            state=RecordDict(),
            run_config={},
        )
        self.online.add(node)
        return node

    def kill(self, node: int, *, noticed: bool = True) -> None:
        """Kill a SuperNode; Flower lists it until it notices."""
        self.dead.add(node)
        if noticed:
            self.online.discard(node)

    def get_node_ids(self) -> Iterable[int]:
        return sorted(self.online)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self.asked += [(m.metadata.dst_node_id, m.metadata.message_type) for m in messages]
        ids = list(super().push_messages(messages))
        lost = [m.metadata.dst_node_id in self.unregistered for m in messages]
        for message_id, is_lost in zip(ids, lost, strict=True):
            if is_lost:
                del self._waiting[message_id]
        return ["" if is_lost else i for i, is_lost in zip(ids, lost, strict=True)]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        asked = set(message_ids)
        for message_id, message in list(self._waiting.items()):
            node = message.metadata.dst_node_id
            if message_id not in asked:
                continue
            if node in self.dead:
                return [self._unavailable(self._waiting.pop(message_id))]
            if self.slow.get(node, 0) > 0:
                self.slow[node] -= 1
                continue
            return [self._answer(self._waiting.pop(message_id))]
        return []

    @staticmethod
    def _unavailable(message: Message) -> Message:
        reply = Message(Error(NODE_UNAVAILABLE, "Error: Node Unavailable"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = SUPERLINK
        return reply
