"""Updates come out in the order of partition ids, as early as they can, and nobody keeps them."""

import gc
import weakref
from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict

from bfl.posteriors import Posterior
from strategies.messaging import in_order
from strategies.updates import ClientUpdate


def update(partition_id: int) -> ClientUpdate:
    posterior = Posterior(np.zeros(1), np.ones(1), np.zeros(0))
    return ClientUpdate(partition_id, posterior, 5, {"id": partition_id})


def reply(node: int, error: str = "") -> Message:
    message = Message(RecordDict(), node, "train")
    if error:
        return Message(Error(code=2, reason=error), reply_to=message)
    return Message(RecordDict(), reply_to=message)


def out(partition_ids: list[int], replies: Iterable[Message]) -> Iterator[ClientUpdate]:
    """Yield the updates of nodes 100, 101, ...; an error gives none."""

    def checked(message: Message, partition_id: int) -> ClientUpdate | None:
        assert message.metadata.src_node_id == 100 + partition_id
        return None if message.has_error() else update(partition_id)

    return in_order(replies, partition_ids, lambda node: node - 100, checked)


def test_any_order_of_arrival_gives_the_order_of_partitions() -> None:
    for order in permutations([1, 3, 4, 7]):
        found = out([1, 3, 4, 7], (reply(100 + p) for p in order))
        assert [u.partition_id for u in found] == [1, 3, 4, 7]


def test_updates_come_out_as_soon_as_their_turn_comes() -> None:
    heard: list[int] = []

    def replies() -> Iterator[Message]:
        for partition_id in (1, 2, 0, 3, 5, 4):
            heard.append(partition_id)
            yield reply(100 + partition_id)

    found = [(u.partition_id, len(heard)) for u in out(list(range(6)), replies())]
    assert found == [(0, 3), (1, 3), (2, 3), (3, 4), (4, 6), (5, 6)]


def test_clients_without_an_update_hold_nobody_up() -> None:
    heard: list[int] = []

    def replies() -> Iterator[Message]:
        for partition_id in (0, 1, 2, 3):
            heard.append(partition_id)
            yield reply(100 + partition_id, "out of memory" if partition_id in (0, 2) else "")

    found = [(u.partition_id, len(heard)) for u in out([0, 1, 2, 3], replies())]
    assert found == [(1, 2), (3, 4)]


def test_those_that_are_never_heard_of_are_left_out() -> None:
    found = out([0, 1, 2, 3], [reply(103), reply(101)])
    assert [u.partition_id for u in found] == [1, 3]


@pytest.mark.usefixtures("quick_collections")
def test_whoever_takes_an_update_is_the_only_one_to_hold_it() -> None:
    alive: list[weakref.ref[Any]] = []

    def replies() -> Iterator[Message]:
        for partition_id in range(20):
            gc.collect()
            assert sum(ref() is not None for ref in alive) <= 1
            yield reply(100 + partition_id)

    for got in out(list(range(20)), replies()):
        alive.append(weakref.ref(got.posterior))
    assert len(alive) == 20
