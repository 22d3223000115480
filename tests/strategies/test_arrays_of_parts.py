"""What parts send, are sent and keep beside the posterior is as they declare it, or refused."""

import math
import re
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import small_federation
from flwr.app import RecordDict

from bfl.configuration import resolve
from bfl.errors import ConfigurationError, RunError
from bfl.federation.parts import Arrays, Counts, DeclaredArray, TwoSidedPart
from bfl.federation.wire import TrainTask, reply_content
from bfl.learning.corrections import Scaffold
from bfl.posteriors import Posterior
from strategies.method import Method
from strategies.server_state import Round, ServerState

SIZE, HOSTILE, ROUNDS = 3, 2, 6
START = Posterior(np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32), np.zeros(1, np.float32))
ZEROS = np.zeros(3, np.float32)


class Squares(TwoSidedPart):
    """A part whose fold makes more of an array than its bounds say, and that bounds nothing."""

    name: ClassVar[str] = "squares"
    state_name: ClassVar[str] = "squares"
    combined: ClassVar[Any] = "sum"

    def begin_server(self, posterior: Posterior, clients: int) -> Arrays:
        return {"sum": np.zeros(posterior.size)}

    def declared_replies(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        shape = (posterior.size,)
        return (DeclaredArray("path", shape, self.combined, low=-math.inf, high=math.inf),)

    def fold(self, state: Arrays, combined: Arrays, counts: Counts) -> Arrays:
        return {"sum": state["sum"] + np.square(combined["path"])}


class MeanSquares(Squares):
    """The same of weighted means."""

    combined: ClassVar[Any] = "mean"


PARTS: dict[str, tuple[TwoSidedPart, str]] = {
    "scaffold": (Scaffold(), "control-change-mean"),
    "sum": (Squares(), "path"),
    "mean": (MeanSquares(), "path"),
}


def play(
    part: TwoSidedPart,
    value: float | None = 0.5,
    name: str = "path",
    rounds: int = ROUNDS,
    trained: list[int] | None = None,
    **more: Any,
) -> tuple[list[Round], list[str]]:
    """Return the rounds in which one client sends a value, or nothing at all, and what is told."""

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        if trained is not None:
            trained.append(task.partition_id)
        if task.partition_id == HOSTILE and value is None:
            raise RuntimeError("no reply")
        beside = {
            a.name: np.full(a.shape, 0.5, np.float32) for a in part.declared_replies(received)
        }
        if task.partition_id == HOSTILE and name in beside:
            beside[name].fill(value)
        return reply_content(received, {"num-examples": 5}, beside)

    method = {"rule": "nwa", "parts": (part,), "round_retries": 0}
    return small_federation.play(reply, start=START, rounds=rounds, **method, **more)[1:]


def states(rounds: list[Round]) -> list[dict[str, bytes]]:
    return [{n: a.tobytes() for n, a in done.state.to_arrays().items()} for done in rounds]


@pytest.mark.parametrize(
    ("case", "value", "reason"),
    [
        ("scaffold", 3e38, r"control-change-mean' with 3 of 3 values outside \[-1e\+06, 1e\+06\]"),
        ("scaffold", 1e5, r"control-change-mean of up to 1e\+05"),
        ("scaffold", -1.1e6, r"control-change-mean' with 3 of 3 values outside"),
        ("scaffold", math.nan, "control-change-mean' with 3 of 3 values that are not finite"),
    ],
)
def test_a_client_is_left_out_and_the_run_goes_on(case: str, value: float, reason: str) -> None:
    part, name = PARTS[case]
    rounds, told = play(part, value, name)
    assert [done.metrics["refused"] for done in rounds] == [1] * ROUNDS
    assert len(told) == ROUNDS
    assert told[0].startswith(f"round 1, client {HOSTILE}: update refused: ")
    assert re.search(reason, told[0])
    assert states(rounds) == states(play(part, None, name)[0])


@pytest.mark.parametrize("case", PARTS)
def test_what_the_bounds_allow_is_pooled(case: str) -> None:
    part, name = PARTS[case]
    rounds, told = play(part, 99.0, name)
    assert [done.metrics["refused"] for done in rounds] == [0] * ROUNDS
    assert not told
    state = rounds[-1].state.parts[part.state_name]
    assert max(np.abs(array).max() for array in state.values() if array.size) > 10


def test_arrays_are_summed_or_averaged_with_the_weights_of_the_pool() -> None:
    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        beside = {"path": np.full(SIZE, task.partition_id, np.float32)}
        return reply_content(received, {"num-examples": 1 + task.partition_id}, beside)

    for part, expected in ((Squares(), 6.0), (MeanSquares(), (1 * 2 + 2 * 3 + 3 * 4) / 10)):
        settings = {"rule": "nwa", "weighting": "train-size", "parts": (part,)}
        _, (done,), _ = small_federation.play(reply, start=START, **settings)
        np.testing.assert_allclose(done.state.parts["squares"]["sum"], expected**2)


def test_what_the_server_sends_is_checked_before_clients_are_asked() -> None:
    class Sending(Squares):
        def broadcast(self, state: Arrays) -> Arrays:
            return {"sum": np.full(SIZE, math.nan, np.float32)}

        def declared_broadcast(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
            return (DeclaredArray("sum", (SIZE,)),)

    trained: list[int] = []
    with pytest.raises(RunError, match="part 'squares' broadcasts 'sum' with 3 of 3 values that"):
        play(Sending(), trained=trained)
    assert not trained


class Counter(TwoSidedPart):
    """A part that has nothing to keep before its first round."""

    name: ClassVar[str] = "counter"
    state_name: ClassVar[str] = "counter"

    def fold(self, state: Arrays, combined: Arrays, counts: Counts) -> Arrays:
        return {"rounds.seen": state.get("rounds.seen", np.array(0)) + 1}


class Nothing(TwoSidedPart):
    """A part that keeps something on clients alone."""

    name: ClassVar[str] = "nothing"
    state_name: ClassVar[str] = "nothing"


class Nameless(TwoSidedPart):
    """A part that does not say where its state is."""

    name: ClassVar[str] = "nameless"

    def begin_server(self, posterior: Posterior, clients: int) -> Arrays:
        return {"sum": np.zeros(2)}


def method(*parts: TwoSidedPart) -> Method:
    return replace(Method.of(resolve({"strategy": "nwa"}, check_data=False)), parts=parts)


def test_a_state_that_begins_empty_is_folded_in_every_round() -> None:
    made = method(Counter(), Nothing())
    state = made.first_state(START, 4)
    assert not state.parts
    for number in range(1, 4):
        counts = Counts(asked=4, pooled=4, clients=4, server_round=number)
        state = replace(state, parts=made.update_server_states(state.parts, {}, counts))
        state = ServerState.from_arrays(number, START, state.to_arrays())
        assert list(state.parts) == ["counter"]
        assert state.parts["counter"]["rounds.seen"] == number


@pytest.mark.parametrize("given", ["a.b", "a b", "a/b", "."])
def test_a_state_has_a_name_that_can_be_told_from_its_arrays(given: str) -> None:
    """'a.b' with the array 'c' would be 'a' with the array 'b.c' after a resume."""
    with pytest.raises(ValueError, match=r"state_name of Dotted is .* for instance '(a-b|state)'"):

        class Dotted(TwoSidedPart):
            state_name: ClassVar[str] = given


def test_a_state_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="part 'nameless' keeps sum on the server and has"):
        method(Nameless()).first_state(START, 4)
