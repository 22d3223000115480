"""Updates come out in the order of partition ids, as early as they can, and nobody keeps them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict

from bfl.engine.flower import new_run
from bfl.posteriors import Posterior
from strategies.intake import Intake
from strategies.updates import ClientUpdate, RefusedUpdateError


def update(partition_id: int) -> ClientUpdate:
    posterior = Posterior(np.zeros(1), np.ones(1), np.zeros(0))
    return ClientUpdate(partition_id, posterior, 5, {"id": partition_id})


def reply(node: int, error: str = "") -> Message:
    message = Message(RecordDict(), node, "train")
    if error:
        return Message(Error(code=2, reason=error), reply_to=message)
    return Message(RecordDict(), reply_to=message)


def intake(
    partition_ids: list[int], refused: frozenset[int] = frozenset()
) -> tuple[Intake, list[tuple[int, str]]]:
    """Return an intake for nodes 100, 101, ..., and the warnings that it gives."""
    new_run({})
    warnings: list[tuple[int, str]] = []

    def read(message: Message, partition_id: int) -> ClientUpdate:
        assert message.metadata.src_node_id == 100 + partition_id
        if partition_id in refused:
            raise RefusedUpdateError("not finite")
        return update(partition_id)

    return Intake(
        partition_ids, lambda node: node - 100, read, lambda *what: warnings.append(what)
    ), warnings


def test_any_order_of_arrival_gives_the_order_of_partitions() -> None:
    for order in permutations([1, 3, 4, 7]):
        taken, _ = intake([1, 3, 4, 7])
        out = [u.partition_id for u in taken.updates(reply(100 + p) for p in order)]
        assert out == [1, 3, 4, 7]


def test_updates_come_out_as_soon_as_their_turn_comes() -> None:
    heard: list[int] = []

    def replies() -> Iterator[Message]:
        for partition_id in (1, 2, 0, 3, 5, 4):
            heard.append(partition_id)
            yield reply(100 + partition_id)

    taken, _ = intake(list(range(6)))
    out = [(u.partition_id, len(heard)) for u in taken.updates(replies())]
    assert out == [(0, 3), (1, 3), (2, 3), (3, 4), (4, 6), (5, 6)]


def test_failures_and_refusals_hold_nobody_up() -> None:
    heard: list[int] = []

    def replies() -> Iterator[Message]:
        for partition_id in (0, 1, 2, 3):
            heard.append(partition_id)
            yield reply(100 + partition_id, "out of memory" if partition_id == 0 else "")

    taken, warnings = intake([0, 1, 2, 3], refused=frozenset({2}))
    out = [(u.partition_id, len(heard)) for u in taken.updates(replies())]
    assert out == [(1, 2), (3, 4)]
    assert taken.refused == 1
    assert warnings == [(0, "failed: out of memory"), (2, "update refused: not finite")]


def test_those_that_are_never_heard_of_are_left_out() -> None:
    taken, _ = intake([0, 1, 2, 3])
    assert [u.partition_id for u in taken.updates([reply(103), reply(101)])] == [1, 3]


@pytest.mark.usefixtures("quick_collections")
def test_whoever_takes_an_update_is_the_only_one_to_hold_it() -> None:
    alive: list[weakref.ref[Any]] = []

    def replies() -> Iterator[Message]:
        for partition_id in range(20):
            gc.collect()
            assert sum(ref() is not None for ref in alive) <= 1
            yield reply(100 + partition_id)

    taken, _ = intake(list(range(20)))
    for got in taken.updates(replies()):
        alive.append(weakref.ref(got.posterior))
    assert len(alive) == 20
