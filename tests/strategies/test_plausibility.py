"""One client's values that no honest training can have sent: refused by its name, and no more."""

from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from numpy_server import NumpyServer
from small_federation import play

from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.weightings import weightings
from bfl.errors import RunError
from bfl.federation.wire import TrainTask, reply_content
from bfl.learning.priors import priors
from bfl.posteriors import Posterior
from strategies.plausibility import REACH

D = 6
START = Posterior(np.linspace(-0.5, 0.5, D, dtype=np.float32), np.full(D, 0.01, np.float32))

HOSTILE = {
    **{f"all means {value:g}": ("mean", slice(None), value) for value in (1e3, 1e10, 1e18, 3e38)},
    "one mean 3e38": ("mean", 3, 3e38),
    "one mean -3e38": ("mean", 3, -3e38),
    **{f"variances {value:g}": ("variance", slice(None), value) for value in (1e10, 1e20, 3e38)},
}


def reply_of(hostile: set[int], sends: tuple[str, Any, float]) -> Any:
    """Return what clients reply: honest ones a small change, hostile ones the values given."""

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        step = np.float32(0.1 + 0.05 * task.partition_id)
        vectors = {
            "mean": received.mean + step,
            "variance": received.variance * np.float32(0.9),
            "point": received.point,
        }
        if task.partition_id in hostile:
            name, where, value = sends
            vectors[name] = vectors[name].copy()
            vectors[name][where] = value
        measured = {"num-examples": 10, **dict.fromkeys(reported, 1.0)}
        return reply_content(Posterior(**vectors), measured)

    reported = {name for weighting in weightings.classes() for name in weighting.reads}
    return reply


def settings_of(rule: str, weighting: str = "train-size") -> dict[str, Any]:
    cavity = "cavity" in pooling_rules.create(rule).requires()
    return {
        "rule": rule,
        "weighting": weighting,
        "start": START,
        "server": NumpyServer(D),
        **({"parts": (priors.create("cavity"),), "scale_floor": 0.0} if cavity else {}),
    }


@pytest.mark.parametrize("rule", pooling_rules.names())
@pytest.mark.parametrize("sends", HOSTILE.values(), ids=HOSTILE)
def test_the_sender_is_refused_and_the_others_pooled(rule: str, sends: Any) -> None:
    """Of three clients, two or four more, and as replies come or together."""
    for clients, hostile, partition in ((3, 1, False), (2, 0, False), (5, 4, True)):
        assigned = [np.arange(10)] * clients if partition else None
        more = {**settings_of(rule), "clients": clients, "partition": assigned, "rounds": 2}
        pooled, seen, told = play(reply_of({hostile}, sends), **more)
        honest = {k for k in range(clients) if k != hostile}
        assert [done.metrics["refused"] for done in seen] == [1, 1]
        assert [{entry["client"] for entry in done.clients} for done in seen] == [honest] * 2
        assert all(f"client {hostile}: update refused" in text for text in told)
        assert np.abs(pooled.mean).max() < 5


@pytest.mark.parametrize("partition", [None, [np.arange(10)] * 7])
def test_a_round_is_made_again_without_those_who_were_pooled_too_early(partition: Any) -> None:
    """The first two of seven are hostile, so the middle one of the first three is as well."""
    sends = HOSTILE["all means 1e+10"]
    settings = {**settings_of("ws"), "partition": partition, "clients": 7, "rounds": 2}
    pooled, seen, told = play(reply_of({0, 1}, sends), **settings)
    assert [[entry["client"] for entry in done.clients] for done in seen] == [[2, 3, 4, 5, 6]] * 2
    assert [done.metrics["refused"] for done in seen] == [2, 2]
    assert {text.partition(":")[0] for text in told} >= {f"round 1, client {k}" for k in (0, 1)}
    assert np.abs(pooled.mean).max() < 5


def test_honest_values_that_grow_alike_or_stay_below_the_reach_are_pooled() -> None:
    """Whatever they begin at; and one that is small beside others' is no reason to refuse these."""

    def grows(task: TrainTask, received: Posterior) -> RecordDict:
        scale = np.float32(1e6 * (1 + task.partition_id))
        far = Posterior(received.mean * scale, received.variance * scale**2, received.point)
        return reply_content(far, {"num-examples": 10})

    def differs(task: TrainTask, received: Posterior) -> RecordDict:
        mean = np.full(D, (1e-6, 1e-6, 0.99 * REACH)[task.partition_id], np.float32)
        return reply_content(
            Posterior(mean, received.variance, received.point), {"num-examples": 9}
        )

    for reply in (grows, differs):
        _, (done,), told = play(reply, **settings_of("ws", "equal"), clients=3)
        assert done.metrics["clients"] == 3
        assert not [text for text in told if "refused" in text]


def test_when_nobody_is_usable_after_a_suspicious_round_its_sender_is_named() -> None:
    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        value = np.nan if task.server_round > 1 else 90.0 if task.partition_id == 2 else 0.5
        mean = np.full(D, value, np.float32)
        return reply_content(
            Posterior(mean, received.variance, received.point), {"num-examples": 9}
        )

    with pytest.raises(
        RunError, match=r"round 2: 0 of 3 .* in the round before client 2 sent .* 90"
    ):
        play(reply, **settings_of("ws", "equal"), clients=3, rounds=2, round_retries=0)
