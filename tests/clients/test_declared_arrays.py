"""What a part's half on a client gives is what the part has declared, or the client refuses it."""

from typing import Any, ClassVar

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.configuration.component_slots import SLOTS, base_of
from bfl.errors import ConfigurationError
from bfl.federation.parts import Arrays, DeclaredArray, Trained, TwoSidedPart
from bfl.federation.wire import TrainTask
from bfl.learning.corrections import Correction, NoCorrection, Scaffold, corrections
from bfl.posteriors import Posterior
from clients.state import PartStates

RECEIVED = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(2, np.float32))
TRAINED = Trained(RECEIVED, RECEIVED, {}, 5, 1, 0.1, np.ones(2, bool))
ZEROS = np.zeros(3, np.float32)
OF_PARTS = [kind for kind in SLOTS if issubclass(base_of(kind), TwoSidedPart)]


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


class HiddenGradient(Scaffold):
    """It says nothing of the gradient over all examples that it asks for."""

    name: ClassVar[str] = "hidden-gradient"

    def has(self) -> frozenset[str]:
        return TwoSidedPart.has(self)


@pytest.mark.parametrize(
    ("part", "more", "hidden"),
    [(Hidden, {}, "sent-beside"), (HiddenGradient, {"scaffold-option": "I"}, "full-gradient")],
)
def test_a_part_hides_nothing_from_those_that_it_does_not_go_with(
    part: type[Correction], more: dict[str, Any], hidden: str
) -> None:
    """Privacy, for one, which it would break."""
    given = {"strategy": "scaffold", **more}
    corrections.register(part.name)(part)
    try:
        resolve(given)
        with pytest.raises(ConfigurationError, match=rf"'{part.name}' has '{hidden}' by what it"):
            resolve({**given, "correction": part.name})
    finally:
        corrections.withdraw(lambda component: component is part)


class Leaning(NoCorrection):
    """A correction that adds what it is told."""

    name: ClassVar[str] = "leaning"
    active: ClassVar[bool] = True
    added: ClassVar[Any] = {}

    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        return self.added


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ({"mean": ZEROS, "point": ZEROS[:2], "variance": ZEROS}, "an array 'variance'"),
        ({"mean": ZEROS}, "no array 'point'"),
        ({"mean": ZEROS[:1], "point": ZEROS[:2]}, "'mean' as float32 (1,)"),
    ],
)
def test_what_is_added_to_gradients_is_a_mean_and_a_point(
    added: Arrays, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused where training would leave it out, or fail in words of its own."""
    monkeypatch.setattr(Leaning, "added", {"mean": np.ones(3), "point": np.ones(2)})
    found = Leaning().checked_offsets({}, {}, RECEIVED)
    assert {name: array.dtype for name, array in found.items()} == {
        "mean": np.float32,
        "point": np.float32,
    }
    monkeypatch.setattr(Leaning, "added", added)
    with pytest.raises(ConfigurationError) as caught:
        Leaning().checked_offsets({}, {}, RECEIVED)
    assert f"correction 'leaning' adds {problem}" in str(caught.value)
