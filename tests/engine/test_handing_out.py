"""Flower's engine in memory: a round's messages are handed out at once."""

from typing import Any

import pytest
from flwr.app import Message, RecordDict
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.linkstate import InMemoryLinkState, LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from bfl.engine.flower import new_messages, new_run


class Engine:
    """Flower's state with so many nodes, whom nobody plays: what is asked is taken by hand."""

    def __init__(self, nodes: int) -> None:
        factory = LinkStateFactory(
            FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
        )
        self.state: Any = factory.state()
        assert isinstance(self.state, InMemoryLinkState)
        run = new_run({})
        self.state.run_ids[run.run_id] = RunRecord(run=run)
        self.state.task_store[run.primary_task_id] = Task(
            task_id=run.primary_task_id, run_id=run.run_id
        )
        self.nodes = vce_api._register_nodes(nodes, factory)
        self.grid = InMemoryGrid(factory)
        self.grid.set_run(run)

    def push(self, nodes: list[int]) -> list[str]:
        return list(self.grid.push_messages([Message(RecordDict(), n, "train") for n in nodes]))

    def taken(self) -> list[int]:
        """Return the destinations of what is handed out now."""
        return [message.metadata.dst_node_id for message in new_messages(self.state)]

    def answer(self, message: Message) -> None:
        """Have a node answer what was handed out to it."""
        reply = Message(RecordDict(), reply_to=message)
        reply.metadata.__dict__["_message_id"] = f"reply to {message.metadata.message_id}"
        self.state.store_message_res(reply)


def test_each_message_is_handed_out_once_and_in_order() -> None:
    engine = Engine(5)
    nodes = list(engine.nodes)
    assert engine.taken() == []
    engine.push(nodes[:3])
    assert engine.taken() == nodes[:3]
    assert engine.taken() == []
    engine.push([nodes[4], nodes[0]])
    engine.push([nodes[4]])
    assert engine.taken() == [nodes[4], nodes[0], nodes[4]]
    assert engine.taken() == []


def test_it_looks_at_new_messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not, as Flower's own loop, at all that are not answered, for each node."""
    engine = Engine(200)
    engine.push(list(engine.nodes))
    looked = 0
    real = Message.metadata.fget  # type: ignore[attr-defined]

    def counted(message: Message) -> Any:
        nonlocal looked
        looked += 1
        return real(message)

    monkeypatch.setattr(Message, "metadata", property(counted))
    assert len(engine.taken()) == 200
    assert looked <= 3 * 200
    looked = 0
    assert engine.taken() == []
    assert looked <= 1
