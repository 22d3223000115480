"""What a part has the server send beside the posterior is what the part declares, or nothing is."""

import math
from typing import Any, ClassVar

import numpy as np
import pytest
import small_federation
from flwr.app import RecordDict

from bfl.errors import ConfigurationError, RunError
from bfl.federation.parts import Arrays, Counts, DeclaredArray, TwoSidedPart
from bfl.federation.wire import TrainTask, reply_content
from bfl.posteriors import Posterior
from strategies.run_support import Round

START = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(1, np.float32))
ZEROS = np.zeros(3, np.float32)


class Telling(TwoSidedPart):
    """A part that sends what it is told, and declares one array within ±2."""

    name: ClassVar[str] = "telling"
    told: ClassVar[Any] = {"path": ZEROS}

    def broadcast(self, state: Arrays) -> Arrays:
        return self.told

    def declared_broadcast(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        return (DeclaredArray("path", (posterior.size,), low=-2, high=2),)


class Undeclared(Telling):
    """One that declares nothing."""

    name: ClassVar[str] = "undeclared"

    def declared_broadcast(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        return ()


class Growing(Telling):
    """One that sends the sum of what clients have sent."""

    name: ClassVar[str] = "growing"
    state_name: ClassVar[str] = "growing"

    def begin_server(self, posterior: Posterior, clients: int) -> Arrays:
        return {"path": np.zeros(posterior.size, np.float32)}

    def broadcast(self, state: Arrays) -> Arrays:
        return state

    def declared_replies(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        return (DeclaredArray("path", (posterior.size,), "mean"),)

    def fold(self, state: Arrays, combined: Arrays, counts: Counts) -> Arrays:
        return {"path": state["path"] + combined["path"].astype(np.float32)}


def play(
    part: TwoSidedPart, rounds: int = 1, hostile: float = 0.0
) -> tuple[list[Round], list[str], int]:
    """Return the rounds, what is told, and how often a client trained; client 2 sends a value."""
    trained: list[int] = []
    method = {"rule": "nwa", "parts": (part,), "round_retries": 0}

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        trained.append(task.partition_id)
        value = hostile if task.partition_id == 2 else 0.5
        beside = {
            a.name: np.full(a.shape, value, np.float32) for a in part.declared_replies(received)
        }
        return reply_content(received, {"num-examples": 5}, beside)

    try:
        _, done, told = small_federation.play(reply, start=START, rounds=rounds, **method)
    except (ConfigurationError, RunError) as error:
        return [], [f"{type(error).__name__}: {error}"], len(trained)
    return done, told, len(trained)


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ({"path": ZEROS, "noise": ZEROS}, "an array 'noise'"),
        ({}, "no array 'path'"),
        ({"path": np.zeros(4, np.float32)}, "'path' as float32 (4,)"),
        ({"path": np.zeros(3)}, "'path' as float64 (3,)"),
    ],
)
def test_a_part_sends_the_arrays_that_it_declares(
    sent: Arrays, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has trained when it is found out."""
    assert play(Telling())[1:] == ([], 4)
    monkeypatch.setattr(Telling, "told", sent)
    _, told, trained = play(Telling())
    (line,) = told
    assert line.startswith(f"RunError: part 'telling' broadcasts {problem}")
    assert trained == 0


def test_a_part_that_declares_nothing_sends_nothing() -> None:
    _, told, trained = play(Undeclared())
    assert "part 'undeclared' broadcasts an array 'path'" in told[0]
    assert trained == 0


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (3.0, "'path' with 3 of 3 values outside [-2, 2]"),
        (math.inf, "'path' with 3 of 3 values that are not finite"),
    ],
)
def test_what_clients_would_refuse_is_not_sent(
    value: float, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Telling, "told", {"path": np.full(3, value, np.float32)})
    _, told, trained = play(Telling())
    assert told[0].startswith(f"RunError: part 'telling' broadcasts {problem}")
    assert trained == 0


def test_no_client_alone_makes_the_next_broadcast_impossible() -> None:
    """It is refused as any other bad update is, and the run goes on."""
    rounds, told, _ = play(Growing(), rounds=3, hostile=100.0)
    assert [done.metrics["refused"] for done in rounds] == [1, 1, 1]
    assert told[0].startswith("round 1, client 2: update refused")
    assert "part 'growing' broadcasts 'path' with 3 of 3 values outside" in told[0]
