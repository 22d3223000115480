"""What the parts of a method keep on clients: shared, empty, or lost."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from bfl.errors import LostStateError
from bfl.federation.parts import Arrays, Trained, TwoSidedPart
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior
from clients.state import PartStates, StateInFolder, restore_state

RECEIVED = Posterior(np.zeros(2), np.ones(2))


class Factors(TwoSidedPart):
    name: ClassVar[str] = "factors"
    state_name: ClassVar[str] = "shared"

    def begin_client(self, received: Posterior) -> Arrays:
        return {"precision": np.ones(received.size)}

    def commit(self, state: Arrays, damping: float) -> Arrays:
        return {**state, "precision": damping * state["precision"]}


class Counter(TwoSidedPart):
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


def make_task(server_round: int, pooled_round: int) -> TrainTask:
    return TrainTask(server_round, 0, "{}", 2, None, pooled_round=pooled_round)


def test_what_the_optimizer_or_a_part_kept_is_not_begun_anew_when_it_is_gone(
    tmp_path: Path,
) -> None:
    """With ``optimizer-state="keep"`` a client would go on as if it had never trained."""
    store = StateInFolder(tmp_path / "client")
    assert restore_state(store, make_task(1, 0)) == {}
    store.save(1, {"optimizer.steps": np.array(5)})
    assert restore_state(store, make_task(2, 1))["optimizer.steps"] == 5
    for path in (tmp_path / "client").iterdir():
        path.unlink()
    with pytest.raises(LostStateError, match="client 0: what it kept in round 1 is gone"):
        restore_state(store, make_task(2, 1))


class Late(TwoSidedPart):
    """A part that has nothing to keep before its second round."""

    name: ClassVar[str] = "late"
    state_name: ClassVar[str] = "late"

    def commit(self, kept: Arrays, damping: float) -> Arrays:
        return {"rounds": kept.get("rounds", np.array(0.0)) + 1.0}


def test_a_part_that_has_kept_nothing_yet_has_lost_nothing(tmp_path: Path) -> None:
    store = StateInFolder(tmp_path / "client")
    parts = [Late()]
    trained = Trained(RECEIVED, RECEIVED, {}, 1, 1, 0.1, np.zeros(0, bool))
    for server_round in range(1, 4):
        task = make_task(server_round, server_round - 1)
        states = PartStates.of(parts, restore_state(store, task), task, RECEIVED)
        store.save(server_round, states.conclude(trained)[1])
    assert states.of_part(parts[0])["rounds"] == 2.0
