"""What clients may say of themselves, and what of it reaches a round's record and its weights."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from small_federation import play

from bfl.aggregation.pooling import pooling_rules
from bfl.configuration import resolve
from bfl.errors import ConfigurationError, RunError
from bfl.evaluation.metrics import NOT_FINITE
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.wire import TrainTask, reply_content
from bfl.posteriors import Manifest, Parameter, Posterior
from strategies.application.rounds import FederationRun

MANIFEST = Manifest(
    (
        Parameter("dense/kernel", (3,), True, "he-normal"),
        Parameter("norm/offset", (1,), False, "zeros"),
        Parameter("norm/moving_variance", (2,), False, "ones", minimum=0.0),
    )
)
Reply = Any


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
        configuration=resolve({"evaluate-every": 0}, check_data=False),
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
        ({"partition": [*[np.arange(5)] * 3, np.arange(0)]}, "part 3 of the partition is empty"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(given: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        play(**given)


# A Strategy of one's own ---------------------------------------------------------------------
