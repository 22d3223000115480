"""Coverage and size of prediction sets, by loops over examples and classes."""

from dataclasses import replace

import numpy as np
import pytest

from bfl.evaluation.metrics.base import set_numbers
from bfl.evaluation.prediction import PredictionStatistics

RANDOM = np.random.default_rng(0)
PLAIN = PredictionStatistics.of([RANDOM.dirichlet(np.ones(4), size=50)]).result()
LABELS = RANDOM.integers(0, 3, 50)  # of class 3 there is no example
HELD = RANDOM.random((50, 4)) < 0.6
PREDICTIONS = replace(PLAIN, sets={"mine": HELD}, scores={"far": RANDOM.random(50)})


def test_numbers_by_loop() -> None:
    holding = [label in np.flatnonzero(row) for label, row in zip(LABELS, HELD, strict=True)]
    by_class = [
        np.mean([h for h, y in zip(holding, LABELS, strict=True) if y == c]) for c in (0, 1, 2)
    ]
    assert set_numbers(PREDICTIONS, LABELS) == {
        "mine-coverage": np.mean(holding),
        "mine-least-class-coverage": min(by_class),
        "mine-size": pytest.approx(np.mean([row.sum() for row in HELD])),
    }
    assert set_numbers(PLAIN, LABELS) == {}


def test_numbers_of_some_examples() -> None:
    some = np.array([3, 7, 8])
    taken = PREDICTIONS.take(some)
    np.testing.assert_array_equal(taken.mean_probability, PLAIN.mean_probability[some])
    np.testing.assert_array_equal(taken.epistemic, PLAIN.epistemic[some])
    np.testing.assert_array_equal(taken.scores["far"], PREDICTIONS.scores["far"][some])
    assert set_numbers(taken, LABELS[some])["mine-size"] == HELD[some].sum() / 3
