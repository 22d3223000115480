"""The parts' halves on a client: what they give is declared, what they keep shared or lost."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.configuration.component_slots import SLOTS
from bfl.errors import ConfigurationError
from bfl.federation.parts import Arrays, DeclaredArray, Trained, TwoSidedPart
from bfl.federation.wire import TrainTask
from bfl.learning.corrections import NoCorrection, corrections
from bfl.posteriors import Posterior
from clients.state import ClientState, PartStates

RECEIVED = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(2, np.float32))
TRAINED = Trained(RECEIVED, RECEIVED, {}, 5, 1, 0.1, np.ones(2, bool))
ZEROS = np.zeros(3, np.float32)
OF_PARTS = [kind for kind in SLOTS if issubclass(kind.base, TwoSidedPart)]


def concluded(part: TwoSidedPart) -> Any:
    states = PartStates.of([part], {}, TrainTask(1, 0, "{}", 2, None), RECEIVED)
    return states.conclude(TRAINED)


class Declaring(NoCorrection):
    """A part of one array, which sends and keeps what it is told."""

    name: ClassVar[str] = "declaring"
    sent: ClassVar[Any] = {"path": ZEROS}
    kept: ClassVar[Any] = {}

    def declared_replies(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        return (DeclaredArray("path", (posterior.size,)),)

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        return self.sent, self.kept


class Named(Declaring):
    state_name: ClassVar[str] = "named"


def refused(part: TwoSidedPart) -> str:
    with pytest.raises(ConfigurationError) as caught:
        concluded(part)
    # A deployment's client tells its server, and not only its own log.
    assert caught.value.public
    return str(caught.value)


def test_what_is_kept_has_a_name_to_be_kept_under(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Declaring, "kept", {"momentum": ZEROS})
    assert "keeps momentum on its client" in refused(Declaring())
    assert concluded(Named())[1].keys() == {"part.named.momentum"}
    monkeypatch.setattr(Named, "keeps_on_clients", False)
    assert "keeps momentum on its client" in refused(Named())


class Hidden(Declaring):
    """It says nothing of the arrays that it has clients send."""

    name: ClassVar[str] = "hidden"

    def has(self) -> frozenset[str]:
        return frozenset()


def test_a_part_hides_nothing_from_those_that_it_does_not_go_with() -> None:
    """Privacy, for one, which it would break."""
    corrections.register(Hidden.name)(Hidden)
    try:
        with pytest.raises(ConfigurationError, match="'hidden' has 'sent-beside' by what it"):
            resolve({"strategy": "scaffold", "correction": Hidden.name})
    finally:
        corrections.withdraw(lambda component: component is Hidden)


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
        np.testing.assert_array_equal(state["precision"], [0.5, 0.5, 0.5])
        assert state["rounds"] == 1.0


def make_task(server_round: int, pooled_round: int) -> TrainTask:
    return TrainTask(server_round, 0, "{}", 2, None, pooled_round=pooled_round)


class Late(TwoSidedPart):
    """A part that has nothing to keep before its second round."""

    name: ClassVar[str] = "late"
    state_name: ClassVar[str] = "late"

    def commit(self, kept: Arrays, damping: float) -> Arrays:
        return {"rounds": kept.get("rounds", np.array(0.0)) + 1.0}


def test_a_part_that_has_kept_nothing_yet_has_lost_nothing(tmp_path: Path) -> None:
    store = ClientState(tmp_path / "client")
    parts = [Late()]
    for server_round in range(1, 4):
        task = make_task(server_round, server_round - 1)
        states = PartStates.of(parts, store.restore(task), task, RECEIVED)
        store.save(server_round, states.conclude(TRAINED)[1])
    assert states.of_part(parts[0])["rounds"] == 2.0
