"""Weights by losses, against the objective whose gradient they give."""

import numpy as np
import pytest

from bfl.aggregation.weightings import weightings
from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.federation.client_metrics import TRAIN_LIKELIHOOD
from bfl.posteriors import Posterior


@pytest.mark.parametrize("fairness", [0.0, 0.5, 1.0, 3.0])
def test_averaged_steps_go_down_the_fair_objective(fairness: float) -> None:
    """Clients with quadratic losses; the objective's gradient is taken by differences."""
    generator = np.random.default_rng(0)
    targets, curvatures = generator.normal(size=(4, 3)), generator.uniform(0.5, 2.0, (4, 3))
    examples, at = np.array([10, 30, 20, 40]), generator.normal(size=3)

    def losses(point: np.ndarray) -> np.ndarray:
        return 0.5 * (curvatures * (point - targets) ** 2).sum(axis=1)

    def objective(point: np.ndarray) -> float:
        return float(examples @ losses(point) ** (fairness + 1) / (fairness + 1))

    steps = np.eye(3) * 1e-5
    gradient = np.array([(objective(at + s) - objective(at - s)) / 2e-5 for s in steps])
    means = at - 0.01 * curvatures * (at - targets)
    weights = weightings.create("q-fair", {"fairness": fairness}).weigh(
        [Posterior(mean, np.ones(3)) for mean in means],
        list(examples),
        reports=[{TRAIN_LIKELIHOOD: loss} for loss in losses(at)],
    )
    pooled = weights @ means - at
    cosine = pooled @ gradient / np.linalg.norm(pooled) / np.linalg.norm(gradient)
    assert cosine == pytest.approx(-1.0, abs=1e-9)


def test_clients_that_say_no_loss_are_refused() -> None:
    scheme = weightings.create("q-fair")
    assert scheme.report_problem({TRAIN_LIKELIHOOD: 0.0}) is None
    for report in ({}, {TRAIN_LIKELIHOOD: -0.1}, {TRAIN_LIKELIHOOD: float("nan")}):
        assert TRAIN_LIKELIHOOD in (scheme.report_problem(report) or "")
    with pytest.raises(ConfigurationError, match="q-fair"):
        resolve({"weighting": "q-fair", "outgoing": "clip+noise", "noise-multiplier": 1.0})
