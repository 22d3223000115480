"""The floor of standard deviations in a federation: once, after pooling, and told every round."""

from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from small_federation import play

from bfl.aggregation.pooling import pool, pooling_rules
from bfl.federation.wire import TrainTask, reply_content
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import FRACTION_AT_FLOOR, SCALE_FLOOR
from strategies.server_state import Round

CLIENTS, ROUNDS = 4, 40
GAUSSIAN_RULES = [
    rule
    for rule in pooling_rules.classes()
    if not rule.stochastic and "raised-variances" not in rule().excludes()
]


def start() -> Posterior:
    return Posterior(np.arange(4, dtype=np.float32), np.array([1e-4, 1e-3, 1e-2, 1.0], np.float32))


def echo(task: TrainTask, received: Posterior) -> RecordDict:
    return reply_content(received, {"num-examples": 10})


def rounds_of(rule: Any, rounds: int = ROUNDS, **settings: Any) -> list[Round]:
    return play(echo, start=start(), rounds=rounds, rule=rule(), **settings)[1]


@pytest.mark.parametrize("rule", GAUSSIAN_RULES, ids=lambda rule: rule.name)
def test_the_next_round_takes_the_floored_posterior_for_the_previous_one(rule: Any) -> None:
    """What a rule compares clients with is what they have received: each round is one of its own.

    Distributed weight consolidation takes the previous precision off K − 1 times; had it the one
    before the floor, it would take off more than clients have added.
    """
    posterior = start()
    for finished in rounds_of(rule, rounds=30):
        expected = pool(
            rule(), [posterior] * CLIENTS, np.full(CLIENTS, 1 / CLIENTS), previous=posterior
        ).posterior
        variance = np.maximum(expected.variance, np.float32(SCALE_FLOOR**2))
        np.testing.assert_array_equal(finished.posterior.variance, variance)
        np.testing.assert_array_equal(finished.posterior.mean, expected.mean)
        at_floor = float(np.mean(variance == np.float32(SCALE_FLOOR**2)))
        assert finished.metrics[FRACTION_AT_FLOOR] == at_floor
        posterior = finished.posterior


def test_points_have_no_fraction() -> None:
    points = Posterior(np.zeros(0, np.float32), np.zeros(0, np.float32), np.ones(3, np.float32))
    pooled, (finished,), _ = play(echo, start=points, rule="nwa")
    assert pooled.digest() == points.digest()
    assert FRACTION_AT_FLOOR not in finished.metrics
