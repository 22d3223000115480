"""Flower's engine hands out a round's messages in time proportional to their number."""

import threading
from queue import Queue
from typing import Any

import pytest
from flwr.app import Message, RecordDict
from in_memory_engine import Engine

from bfl.engine.flower import grid, poll_interval


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


def test_flower_takes_what_is_handed_out_as_delivered_and_the_reply_to_it() -> None:
    engine = Engine(2)
    first, second = engine.nodes
    ids = engine.push([first, second])
    handed_out = grid.new_messages(engine.state)
    for node in engine.nodes:
        assert engine.state.get_message_ins(node_id=node, limit=None) == []
    reply = Message(RecordDict(), reply_to=handed_out[1])
    reply.metadata.__dict__["_message_id"] = "reply"
    assert engine.state.store_message_res(reply) == "reply"
    assert list(engine.grid.pull_messages(ids)) == [reply]
    engine.push([second])
    assert engine.taken() == [second]  # though the first is still to be answered


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


def test_the_loop_fills_the_queue_until_it_is_stopped() -> None:
    engine = Engine(3)
    queue: Queue[Message] = Queue()
    stop = threading.Event()
    thread = threading.Thread(target=grid.hand_out, args=(engine.state, queue, engine.nodes, stop))
    thread.start()
    try:
        for node in (*engine.nodes, *engine.nodes):
            engine.push([node])
            assert queue.get(timeout=5).metadata.dst_node_id == node
    finally:
        stop.set()
        thread.join(timeout=5)
    assert not thread.is_alive()


def test_replies_are_looked_for_often_in_this_process_and_not_elsewhere() -> None:
    assert poll_interval(Engine(1).grid) < 0.01
    assert poll_interval(object()) == 0.05
