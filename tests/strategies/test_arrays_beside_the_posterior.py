"""What a client sends beside its posterior ends no run: it is refused like any other bad update."""

import math
import re
from typing import Any, ClassVar

import numpy as np
import pytest
import small_federation
from flwr.app import RecordDict

from bfl.aggregation.server_optimizers import Array, Momentum, State, StepContext
from bfl.federation.parts import Arrays, Counts, DeclaredArray, TwoSidedPart
from bfl.federation.wire import TrainTask, reply_content
from bfl.learning.corrections import Scaffold
from bfl.posteriors import Posterior
from strategies.run_support import Round
from strategies.updates import CombinedExtras

SIZE, HOSTILE, ROUNDS = 3, 2, 6
START = Posterior(np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32), np.zeros(1, np.float32))


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
    part: TwoSidedPart, name: str, value: float | None, **more: Any
) -> tuple[list[Round], list[str]]:
    """Return the rounds in which one client sends a value, or nothing at all, and what is told."""

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        if task.partition_id == HOSTILE and value is None:
            raise RuntimeError("no reply")
        beside = {
            a.name: np.full(a.shape, 0.5, np.float32) for a in part.declared_replies(received)
        }
        if task.partition_id == HOSTILE and value is not None:
            beside[name].fill(value)
        return reply_content(received, {"num-examples": 5}, beside)

    method = {"rule": "nwa", "parts": (part,), "round_retries": 0}
    return small_federation.play(reply, start=START, rounds=ROUNDS, **method, **more)[1:]


def states(rounds: list[Round]) -> list[dict[str, bytes]]:
    return [{n: a.tobytes() for n, a in done.state.to_arrays().items()} for done in rounds]


@pytest.mark.parametrize(
    ("case", "value", "reason"),
    [
        ("scaffold", 3e38, r"control-change-mean' with 3 of 3 values outside \[-1e\+06, 1e\+06\]"),
        ("scaffold", 1e5, r"control-change-mean of up to 1e\+05"),
        ("scaffold", -1.1e6, r"control-change-mean' with 3 of 3 values outside"),
        ("scaffold", math.nan, "control-change-mean' with 3 of 3 values that are not finite"),
        ("sum", 1e25, "the state 'squares' holds values of 'sum' that are not finite in float32"),
        ("mean", -3e38, "the state 'squares' holds values of 'sum' that are not finite in float32"),
    ],
)
def test_a_client_is_left_out_and_the_run_goes_on(case: str, value: float, reason: str) -> None:
    rounds, told = play(*PARTS[case], value)
    assert [done.metrics["refused"] for done in rounds] == [1] * ROUNDS
    assert len(told) == ROUNDS
    assert told[0].startswith(f"round 1, client {HOSTILE}: update refused: ")
    assert re.search(reason, told[0])
    without, _ = play(*PARTS[case], None)
    assert states(rounds) == states(without)


@pytest.mark.parametrize("case", PARTS)
def test_what_the_bounds_allow_is_pooled(case: str) -> None:
    rounds, told = play(*PARTS[case], 99.0)
    assert [done.metrics["refused"] for done in rounds] == [0] * ROUNDS
    assert not told
    part = rounds[-1].state.parts[PARTS[case][0].state_name]
    assert max(np.abs(array).max() for array in part.values() if array.size) > 10


def test_a_mean_of_nobody_is_refused_and_a_sum_of_nobody_is_zero() -> None:
    summed, mean = DeclaredArray("s", (2,)), DeclaredArray("m", (1,), "mean")
    assert CombinedExtras([summed]).combined()["s"].tolist() == [0.0, 0.0]
    combination = CombinedExtras([summed, mean])
    with pytest.raises(ValueError, match="nothing to average"):
        combination.combined()
    for value, weight in ((1.0, 1.0), (4.0, 2.0)):
        combination.add({"s": np.ones(2, np.float32), "m": np.float32([value])}, weight)
    assert {k: v.tolist() for k, v in combination.combined().items()} == {"s": [2, 2], "m": [3]}


class Recording(Momentum):
    """A server optimizer that keeps what it is told of each round."""

    seen: ClassVar[list[StepContext]] = []
    server_momentum: float = 0.5

    def step(self, state: State, delta: Array, context: StepContext) -> tuple[State, Array]:
        self.seen.append(context)
        return super().step(state, delta, context)


@pytest.mark.parametrize(("case", "value"), [("sum", 1.0), ("mean", 1.0), ("mean", None)])
def test_a_servers_step_is_told_of_the_cohort_and_what_it_has_sent(
    case: str, value: float | None
) -> None:
    Recording.seen.clear()
    rounds, _ = play(*PARTS[case], value, server_optimizer=Recording())
    clients = round(rounds[0].metrics["clients"])
    others = clients - (value is not None)
    total = 0.5 * others + (value or 0.0)
    for number, context in enumerate(Recording.seen, start=1):
        assert (context.server_round, context.pooled) == (number, clients)
        assert context.asked == clients + (value is None)
        np.testing.assert_allclose(
            context.combined["path"], total if case == "sum" else total / clients
        )
    assert len(Recording.seen) == ROUNDS
