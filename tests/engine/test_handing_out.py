"""Flower's engine in memory: a round's messages handed out at once, and kept for days."""

import datetime
from collections.abc import Iterable
from typing import Any

import pytest
from flwr.app import Message, RecordDict
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.linkstate import (
    InMemoryLinkState,
    LinkStateFactory,
    in_memory_linkstate,
)
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from bfl.engine.flower import new_messages, new_run, poll_interval
from strategies.messaging import UsableReplies, exchange_with_retries


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


def test_replies_are_looked_for_often_in_this_process_and_not_elsewhere() -> None:
    assert poll_interval(Engine(1).grid) < 0.01
    assert poll_interval(object()) == 0.05


# Rounds that take longer than Flower keeps a message by itself --------------------------------

HOUR = 3600.0


class Days(Engine):
    """Clients that train for hours, one after the other: a look for replies takes as long."""

    def __init__(self, nodes: int, hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(nodes)
        self.waiting: list[Message] = []
        self.sent: list[Message] = []
        self.ahead, self.hours = datetime.timedelta(), datetime.timedelta(hours=hours)
        now, push, pull = in_memory_linkstate.now, self.grid.push_messages, self.grid.pull_messages
        monkeypatch.setattr(in_memory_linkstate, "now", lambda: now() + self.ahead)

        def pushed(messages: Iterable[Message]) -> Iterable[str]:
            self.sent.extend(messages := list(messages))
            return push(messages)

        def pulled(message_ids: Iterable[str]) -> Iterable[Message]:
            self.waiting += new_messages(self.state)
            self.ahead += self.hours
            if self.waiting:
                self.answer(self.waiting.pop(0))
            return pull(message_ids)

        monkeypatch.setattr(self.grid, "push_messages", pushed)
        monkeypatch.setattr(self.grid, "pull_messages", pulled)

    def ask(self, timeout: float) -> list[bool]:
        """Ask all clients; return which of the replies are none, as they come."""
        replies = exchange_with_retries(
            self.grid,
            [Message(RecordDict(), node, "train", group_id="1") for node in self.nodes],
            silence=timeout,
            retries=1,
            usable=UsableReplies(len(self.nodes)),
            report=lambda node, reason: pytest.fail(f"asked again: {reason}"),
        )
        return [reply.has_error() for reply in replies]


@pytest.mark.parametrize(("clients", "hours", "limit"), [(5, 13.0, 14), (2, 0.1, 1)])
def test_clients_that_train_one_after_the_other_each_have_their_time(
    clients: int, hours: float, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And half a day more: who has hung does not train for all rounds that it has missed."""
    engine = Days(clients, hours, monkeypatch)
    assert engine.ask(limit * HOUR) == [False] * clients
    assert {message.metadata.ttl for message in engine.sent} == {(12 + clients * limit) * HOUR}
