"""What clients may say of themselves, and what of it reaches a round's record and its weights."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict
from small_federation import (
    START,
    arguments,
    federated_round,
    make_app,
    make_clients,
    make_grid,
    play,
)

import strategies
from bfl.aggregation.pooling import pooling_rules
from bfl.configuration import resolve
from bfl.errors import ConfigurationError, RunError
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.wire import TrainTask, posterior_to_arrays, reply_content
from bfl.posteriors import Manifest, Parameter, Posterior
from strategies.application.rounds import FederationRun
from strategies.run_support import NOT_FINITE
from strategies.server_state import ServerState

MANIFEST = Manifest(
    (
        Parameter("dense/kernel", (3,), True, "he-normal"),
        Parameter("norm/offset", (1,), False, "zeros"),
        Parameter("norm/moving_variance", (2,), False, "ones", minimum=0.0),
    )
)
Reply = Any


# Point parameters ----------------------------------------------------------------------------


def negative(task: TrainTask, received: Posterior) -> RecordDict:
    point = received.point.copy()
    point[2] = -0.5 if task.partition_id == 1 else 0.0
    posterior = Posterior(received.mean, received.variance, point)
    return reply_content(posterior, {"num-examples": 5})


def test_a_negative_moving_variance_is_refused_with_its_name() -> None:
    pooled, rounds, told = play(negative, manifest=MANIFEST, rounds=2)
    assert [r.metrics["refused"] for r in rounds] == [1, 1]
    assert told[0] == (
        "round 1, client 1: update refused: point parameter 'norm/moving_variance' has 1 of 2 "
        "values below 0, the least -0.5"
    )
    assert told[1].startswith("round 2, client 1: update refused")
    assert pooled.point.tolist() == [-1.0, 1.0, 0.0]  # 0, where a channel is silent, is sound


def test_a_run_does_not_begin_with_a_negative_one() -> None:
    strategy = strategies.Conflation(**arguments(manifest=MANIFEST))
    wrong = posterior_to_arrays(Posterior(START.mean, START.variance, -START.point))
    with pytest.raises(ConfigurationError, match=r"initial_arrays: .*moving_variance"):
        strategy.start(make_grid(make_app()), wrong)


# A rule's wrong numbers ----------------------------------------------------------------------


def test_a_rule_that_gives_no_posterior_ends_the_run() -> None:
    class Wrong(pooling_rules.get("nwa")):  # type: ignore[misc]
        name = "wrong-rule"

        def decode(self, sums: Any, totals: Any, block: Any) -> Any:
            decoded = super().decode(sums, totals, block)
            if totals.count > 2:  # more than pool before the first round
                decoded.variance[:2] *= -1
            return decoded

    with pytest.raises(RunError, match=r"round 1, pooling: strategy wrong-rule gives 2 of 3 var"):
        play(rule=Wrong())


# Metrics -------------------------------------------------------------------------------------

SERVERS = (
    "round seconds clients failures refused accuracy negative-log-likelihood posterior-sha256 "
    "effective-clients largest-weight clipped-fraction server-memory degree-of-spread"
)


def quiet_run(folder: RunFolder) -> Any:
    """Return a run of ten classes that shows nothing."""
    progress = SimpleNamespace(say=lambda _: None, round=lambda *_: None, is_live=False)
    evaluator = SimpleNamespace(manifest=MANIFEST, validates=False)
    data = SimpleNamespace(dataset=SimpleNamespace(num_classes=10), test=None)
    return FederationRun(
        configuration=resolve({}, check_data=False),
        grid=None,  # type: ignore[arg-type]
        federation=None,  # type: ignore[arg-type]
        results=folder,
        evaluator=evaluator,
        data=data,  # type: ignore[arg-type]
        progress=progress,  # type: ignore[arg-type]
    )


def test_a_pool_whose_predictions_are_not_finite_is_not_kept(tmp_path: Path) -> None:
    _, (finished,), _ = play()
    folder = RunFolder.create(tmp_path, "run", {}, {})
    with pytest.raises(RunError, match="7 of the pool's logits are not finite"):
        quiet_run(folder).end_round(replace(finished, metrics={NOT_FINITE: 7.0}))
    assert not folder.rounds()


def test_a_client_overwrites_nothing(tmp_path: Path) -> None:
    def lying(task: TrainTask, received: Posterior) -> RecordDict:
        lies = dict.fromkeys(SERVERS.split(), 1000000.0) if task.partition_id == 3 else {}
        return reply_content(received, {"num-examples": 5, "train-loss": 2.0, **lies})

    _, honest, _ = play(lambda task, received: reply_content(received, {"num-examples": 5}))
    _, (lied,), _ = play(lying)
    for name, value in honest[0].metrics.items():
        assert lied.metrics[name] == value, name
    news = lied.metrics.keys() - honest[0].metrics.keys()
    # No accuracy is a million, and no likelihood below one.
    bounded = {"accuracy"}
    assert news == {f"client/{n}" for n in {*SERVERS.split(), "train-loss"} - bounded}

    folder = RunFolder.create(tmp_path, "run", {}, {})
    quiet_run(folder).end_round(lied)
    [entry] = folder.rounds()
    assert (entry["round"], entry["clients"], entry["client/round"]) == (1, 4, 1e6)
    assert entry["seconds"] < 100
    assert "accuracy" not in entry
    assert json.dumps(entry)


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({"a b": 1.0}, "a metric is called 'a b'; allowed"),
        ({"../round": 1.0}, "a metric is called '../round'"),
        ({"": 1.0}, "a metric is called ''"),
        ({"x" * 65: 1.0}, "a metric is called"),
        ({f"m{i}": 1.0 for i in range(64)}, "there are 65 metrics; allowed: 64"),
    ],
    ids=["space", "slash", "empty", "long", "many"],
)
def test_names_and_numbers_of_metrics_are_limited(metrics: dict[str, float], reason: str) -> None:
    def talking(task: TrainTask, received: Posterior) -> RecordDict:
        more = metrics if task.partition_id == 1 else {}
        return reply_content(received, {"num-examples": 5, **more})

    _, rounds, told = play(talking)
    assert rounds[0].metrics["refused"] == 1
    assert f"round 1, client 1: update refused: {reason}" in told[0]


def test_what_clients_measure_is_averaged_with_their_examples() -> None:
    """Over those that have sent it, whatever the pool's own weights are."""

    def measuring(task: TrainTask, received: Posterior) -> RecordDict:
        own = {"some": 1.0 + task.partition_id} if task.partition_id > 1 else {}
        count = 10 ** (task.partition_id + 1)
        return reply_content(received, {"num-examples": count, "loss": task.partition_id, **own})

    _, (finished,), _ = play(measuring, weighting="equal")
    assert finished.metrics["num-examples"] == 11110
    assert finished.metrics["client/loss"] == pytest.approx((100 + 2000 + 30000) / 11110)
    assert finished.metrics["client/some"] == pytest.approx((3 * 1000 + 4 * 10000) / 11000)


# Numbers of examples -------------------------------------------------------------------------


def claims(**said: int) -> Reply:
    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        return reply_content(received, {"num-examples": said.get(f"client_{task.partition_id}", 7)})

    return reply


def test_what_a_node_has_declared_stays() -> None:
    _, rounds, told = play(
        claims(client_2=8), weighting="train-size", described={"own_examples": 7}
    )
    assert rounds[0].metrics["refused"] == 1
    assert rounds[0].metrics["num-examples"] == 3 * 7
    assert "num-examples is 8; this client holds 7" in told[0]


def test_a_node_that_takes_anothers_place_is_held_to_its_number() -> None:
    said = {"client_2": 7}
    told: list[str] = []

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        content: RecordDict = claims(**said)(task, received)
        return content

    strategy = strategies.Conflation()
    grid = make_grid(make_app(reply, own_examples=7))
    clients = make_clients(grid, max_examples=100, warn=told.append)
    state, first = federated_round(strategy.method, ServerState.first(START, 4), clients, 0)
    # A node that says otherwise plays partition 2 from now on.
    own = {**clients.federation.own_examples, 2: 2**53}
    clients.federation = replace(clients.federation, own_examples=own)
    said["client_2"] = 2**53
    _, second = federated_round(strategy.method, state, clients, 0)
    assert [first.metrics["refused"], second.metrics["refused"]] == [0, 1]
    assert "this client holds 7" in told[0]


def test_what_is_not_known_has_a_cap() -> None:
    _, rounds, told = play(claims(client_2=101), max_examples=100)
    assert rounds[0].metrics["refused"] == 1
    assert "num-examples is 101; expected 1 to 100, the most that is believed" in told[0]
    _, rounds, _ = play(claims(client_2=100), max_examples=100)
    assert rounds[0].metrics["refused"] == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"described": {"own_examples": 101}, "max_examples": 100},
            r"partition 0 declares 101 .*at most max-examples, 100",
        ),
        ({"partition": [np.arange(5)] * 3}, "3 parts and the federation 4 clients"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(given: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        play(**given)


def test_a_client_without_an_example_is_not_one_of_unknown_size() -> None:
    told: list[int] = []

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        told.append(task.partition_id)
        return reply_content(received, {"num-examples": 7})

    parts = [np.arange(7), np.arange(7), np.arange(0), np.arange(7)]
    with pytest.raises(ConfigurationError, match="part 2 of the partition is empty"):
        play(reply, partition=parts)
    assert not told  # before anybody has trained
    play(reply, partition=[part if part.size else None for part in parts])


# Weights -------------------------------------------------------------------------------------


def test_the_weights_of_a_round_are_described() -> None:
    parts = [np.arange(n) for n in (10, 20, 30, 40)]
    for weighting, largest in (("train-size", 0.4), ("equal", 0.25)):
        for rule in ("ws", "ppa"):  # foreseen, and together
            _, rounds, told = play(rule=rule, weighting=weighting, partition=parts)
            metrics = rounds[0].metrics
            assert metrics["largest-weight"] == pytest.approx(largest)
            squares = 0.01 + 0.04 + 0.09 + 0.16 if weighting == "train-size" else 0.25
            assert metrics["effective-clients"] == pytest.approx(1 / squares)
            assert not told


# A Strategy of one's own ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "settings", "words"),
    [
        (["mean", "point"], {}, "initial_arrays has mean, point; expected mean, variance, point"),
        (["point"], {"empty": True}, "strategy 'conflation' pools Gaussian posteriors"),
        (
            ["point"],
            {"empty": True, "rule": "nwa", "weighting": "distance"},
            "weighting 'distance' compares posteriors",
        ),
        (["point"], {"empty": True, "rule": "client-gaussian"}, "strategy 'client-gaussian'"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anybody_trains(
    arrays: list[str], settings: dict[str, Any], words: str
) -> None:
    def trains(task: TrainTask, received: Posterior) -> RecordDict:
        raise AssertionError("nobody is asked")

    settings = dict(settings)
    empty = np.zeros(0, np.float32)
    record = (
        posterior_to_arrays(Posterior(empty, empty, START.point))
        if settings.pop("empty", False)
        else ArrayRecord({name: posterior_to_arrays(START)[name] for name in arrays})
    )
    strategy = strategies.PosteriorPooling(**arguments(**{"rule": "conflation", **settings}))
    with pytest.raises(ConfigurationError, match=words):
        strategy.start(make_grid(make_app(trains)), record)
