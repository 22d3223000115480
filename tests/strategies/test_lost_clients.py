"""Clients that fail are left out, and what is recorded of the others."""

from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, RecordDict
from small_federation import START, arguments, make_app, make_clients, make_grid, play, shifted

import strategies.flower_clients
from bfl.errors import LostStateError, RunError
from bfl.experiments.results.clients import CLIENTS_LEFT_OUT, describe_left_out
from bfl.federation.wire import RUN_CANNOT_GO_ON as LOST
from bfl.federation.wire import TrainTask, posterior_to_arrays, reply_content
from bfl.posteriors import Posterior
from strategies import PosteriorPooling
from strategies.round import round_request
from strategies.server_state import ServerState


@pytest.mark.parametrize(
    ("codes", "min_clients", "lost"),
    [
        ({1: LOST}, 4, True),
        ({1: 2}, 4, False),
        # The two that only failed may come back, and with them there are enough.
        ({0: 2, 1: LOST, 2: 2}, 3, False),
        ({0: LOST, 1: LOST, 2: 2}, 3, True),
    ],
)
def test_a_run_that_cannot_do_without_what_is_lost_says_so(
    codes: dict[int, int], min_clients: int, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(task: TrainTask, received: Posterior) -> RecordDict | Error:
        code = codes.get(task.partition_id)
        return Error(code=code, reason="gone") if code else shifted(task, received)

    # Of a simulation one is enough to end it.
    monkeypatch.setattr(strategies.flower_clients, "is_simulation", lambda grid: False)
    with pytest.raises(RunError) as caught:
        play(reply, round_retries=0, min_clients=min_clients)
    assert isinstance(caught.value, LostStateError) is lost


@pytest.mark.parametrize("enough", [True, False])
def test_a_share_of_the_clients_is_rounded_up(enough: bool) -> None:
    def reply(task: TrainTask, received: Posterior) -> RecordDict | Error:
        present = task.partition_id < (3 if enough else 2)
        return shifted(task, received) if present else Error(code=2, reason="gone")

    with nullcontext() if enough else pytest.raises(RunError, match="min-clients"):
        play(reply, round_retries=0, min_clients=0.6)


def test_an_answer_in_flowers_own_name_is_the_failure_of_the_client_asked() -> None:
    warnings: list[str] = []
    clients = make_clients(make_grid(make_app()), warn=warnings.append)
    request = round_request(PosteriorPooling(rule="ws").method, ServerState.first(START, 4), 0)
    replies = list(clients.replies(request.name, clients.messages(request)))
    replies[1].metadata.__dict__["_src_node_id"] = 99  # no client
    assert [update.partition_id for update in clients.updates(request, replies)] == [0, 2, 3]
    assert len(warnings) == 1
    assert "client 1" in warnings[0]


def test_a_round_that_is_repeated_begins_a_new_federation() -> None:
    strategy = PosteriorPooling(**arguments(rule="ws"))
    grid, arrays = make_grid(make_app()), posterior_to_arrays(START)
    begun = []
    for number in (1, 2, 2, 3, 1):
        strategy.configure_train(number, arrays, ConfigRecord(), grid)
        begun.append(strategy.clients)
    assert [before is after for before, after in pairwise(begun)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("name", "honest", "lie"),
    [
        ("accuracy", 0.5, 1e30),
        ("test-accuracy", 0.5, 1.5),
        ("meme-brier-score", 1.5, 2.5),
        ("personal-expected-calibration-error", 0.25, -0.25),
        ("meme-retention-area-accuracy-predictive-entropy", 0.75, 1e30),
        ("better-accuracy", 1.0, -1e-3),
        ("negative-log-likelihood", 3.0, -1e30),
        ("train-negative-log-likelihood", 3.0, -1e30),
        ("train-negative-log-likelihood", -5.9, -6.1),  # of numbers, it is a density's
        ("train-seconds", 2.0, -1e30),
        ("train-steps", 3.0, 0.5),
        ("train-steps", 3.0, 0.0),
        # Means with these would overflow.
        ("train-divergence", 2.0, 1.7e308),
        ("train-divergence", 2.0, float("nan")),
    ],
)
def test_a_number_that_cannot_be_does_not_reach_the_mean(
    name: str, honest: float, lie: float
) -> None:
    def talking(task: TrainTask, received: Posterior) -> RecordDict:
        value = lie if task.partition_id == 2 else honest
        # The better of two accuracies is one of them.
        return reply_content(received, {"num-examples": 5, "meme-accuracy": 1.0, name: value})

    _, rounds, told = play(talking, rounds=2)
    for finished in rounds:
        assert finished.metrics[f"client/{name}"] == honest
        assert (finished.metrics["clients"], finished.metrics["refused"]) == (4, 0)
    said = f"says what cannot be, left out of means: {name} {lie:g}"
    if name != "train-divergence":  # which is no share, and may be anything
        assert told == [f"round 1, client 2: {said}", f"round 2, client 2: {said} (as before)"]


BEGUN = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32))


def reply(task: TrainTask, received: Posterior) -> RecordDict:
    """Client 1 sends what is refused; client 2 has test data; all measure something unknown."""
    k = task.partition_id
    mean = received.mean + np.float32(np.nan if k == 1 else k)
    own = {"test-accuracy": 0.5, "test-examples": 8} if k == 2 else {}
    metrics: dict[str, float | int] = {
        "num-examples": 10 * (k + 1),
        "train-negative-log-likelihood": 0.1 * k,
        "train-divergence": 100.0 + k,
        "train-seconds": 1.0,
        "weight": 99.0,
        "client": 7,
        "of-my-own": 3.0,
        **own,
    }
    return reply_content(Posterior(mean, received.variance, received.point), metrics)


@pytest.mark.parametrize("foreseen", [True, False])
@pytest.mark.parametrize("strategy", ["nwa", "conflation", "ppa"])
@pytest.mark.parametrize("weighting", ["train-size", "equal", "max-discrepancy"])
def test_each_accepted_update_has_an_entry_with_its_weight(
    weighting: str, strategy: str, foreseen: bool
) -> None:
    """The refused client has none, and no client writes what is not its to say.

    Where the server has assigned the examples it may know the weights before the replies, of which
    one is then missing.
    """
    partition = [np.arange(10 * (k + 1)) for k in range(4)] if foreseen else None
    method = {"rule": strategy, "weighting": weighting}
    for finished in play(reply, start=BEGUN, rounds=2, partition=partition, **method)[1]:
        entries = finished.clients
        assert [entry["client"] for entry in entries] == [0, 2, 3]
        assert [entry["num-examples"] for entry in entries] == [10, 30, 40]
        weights = [entry["weight"] for entry in entries]
        assert sum(weights) == pytest.approx(1.0)
        if weighting == "train-size":
            np.testing.assert_allclose(weights, [1 / 8, 3 / 8, 4 / 8])
        elif weighting == "equal":
            np.testing.assert_allclose(weights, [1 / 3] * 3)
        for entry in entries:
            k = entry["client"]
            assert entry["train-negative-log-likelihood"] == pytest.approx(0.1 * k)
            assert entry["train-divergence"] == 100.0 + k
            assert "of-my-own" not in entry
            assert ("test-accuracy" in entry) == (k == 2)
        assert entries[1]["test-accuracy"] == 0.5


def test_each_client_that_is_missing_is_recorded_by_name_and_reason() -> None:
    def reply(task: TrainTask, received: Posterior) -> RecordDict | Error:
        if task.partition_id == 1:
            return Error(code=2, reason="no reply for 5 s (client-timeout)")
        if task.partition_id == 2:
            raise RuntimeError("out of memory")
        return RecordDict() if task.partition_id == 3 else shifted(task, received)

    _, (done,), _ = play(reply, clients=4, min_clients=1, round_retries=0)
    assert [(entry["client"], entry["reason"]) for entry in done.left_out] == [
        (1, "stopped answering"),
        (2, "failed"),
        (3, "update refused"),
    ]


def test_rounds_without_a_client_are_told_in_one_line_and_too_few_in_another() -> None:
    def record(number: int, *names: str) -> dict[str, Any]:
        entries = [{"client": 0, "name": name, "reason": "failed"} for name in names]
        missing = {CLIENTS_LEFT_OUT: entries} if names else {}
        return {"round": number, "clients": 3 - len(names), **missing}

    rounds = [record(1, "a"), record(2), record(3, "a"), record(4, "a", "b")]
    a, b, few = describe_left_out(rounds)
    assert a == "rounds 1, 3, 4 without a (failed)"
    assert b == "round 4 without b (failed)"
    assert "1 of 3" in few
    assert describe_left_out(rounds[:2]) == ["round 1 without a (failed)"]
    assert not describe_left_out([])
