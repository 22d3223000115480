"""Parts of one method that share a state on clients: none overwrites what another has."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bfl.federation.parts import Arrays, Part
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior
from clients.part_states import PartStates

RECEIVED = Posterior(np.zeros(2), np.ones(2))


class Factors(Part):
    name: ClassVar[str] = "factors"
    state_name: ClassVar[str] = "shared"

    def begin_client(self, received: Posterior) -> Arrays:
        return {"precision": np.ones(received.size)}

    def commit(self, state: Arrays, damping: float) -> Arrays:
        return {**state, "precision": damping * state["precision"]}


class Counter(Part):
    name: ClassVar[str] = "counter"
    state_name: ClassVar[str] = "shared"

    def begin_client(self, received: Posterior) -> Arrays:
        return {"rounds": np.array(0.0)}

    def commit(self, state: Arrays, damping: float) -> Arrays:
        return {**state, "rounds": state["rounds"] + 1.0}


def test_parts_that_share_a_state_begin_it_and_commit_it_together() -> None:
    for parts in ([Factors(), Counter()], [Counter(), Factors()]):
        first = PartStates.of(parts, {}, TrainTask(1, 0, "{}", 2, None), RECEIVED)
        begun = first.of_part(parts[0])
        assert sorted(begun) == ["precision", "rounds"]
        kept = {f"part.shared.{name}": array for name, array in begun.items()}
        task = TrainTask(2, 0, "{}", 2, None, pooled_round=1, damping=0.5)
        state = PartStates.of(parts, kept, task, RECEIVED).of_part(parts[1])
        np.testing.assert_array_equal(state["precision"], [0.5, 0.5])
        assert state["rounds"] == 1.0
