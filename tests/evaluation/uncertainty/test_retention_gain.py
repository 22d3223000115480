"""Gains of sorting, and of sorting at random: by hand, over all orders, and for rounding noise."""

from __future__ import annotations

import doctest
from itertools import permutations

import numpy as np
import pytest

from bfl.evaluation.uncertainty import retention, retention_curve
from bfl.evaluation.uncertainty.retention import RESOLUTION, random_gain, retention_gain


def test_the_control_is_the_root_mean_square_over_all_orders() -> None:
    values = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 0.5, 2.0])
    found = [
        retention_gain(values[list(order)], np.arange(1.0, 8.0), higher_is_better=True)
        for order in permutations(range(7))
    ]
    assert np.mean(found) == pytest.approx(0.0, abs=1e-12)
    assert random_gain(values) == pytest.approx(np.sqrt(np.mean(np.square(found))))


def test_the_control_shrinks_with_the_test_set() -> None:
    right = np.tile([1.0, 0.0], 5000)
    assert random_gain(right) < 0.01 < random_gain(right[:100])
    assert random_gain([0.3]) == 0.0
    random = np.random.default_rng(0)
    found = [retention_gain(right, random.random(10_000), higher_is_better=True) for _ in range(50)]
    assert np.std(found) == pytest.approx(random_gain(right), rel=0.4)


def test_a_gain_is_positive_where_the_uncertainty_knows() -> None:
    values, ranks = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.1, 0.2, 0.3, 0.4])
    assert retention_gain(values, ranks, higher_is_better=True) > 0.2
    assert retention_gain(values, -ranks + 1, higher_is_better=True) < -0.2
    assert retention_gain(1 - values, ranks, higher_is_better=False) == pytest.approx(
        retention_gain(values, ranks, higher_is_better=True)
    )


def test_rounding_noise_gains_nothing_however_well_it_sorts() -> None:
    right = np.array([1.0] * 60 + [0.0] * 40)
    noise = np.linspace(1e-14, 5e-13, 100)
    assert retention_curve(right, noise).area - 0.6 > 0.15, "the area alone is taken in"
    assert retention_gain(right, noise, higher_is_better=True) == 0.0
    assert retention_gain(right, noise * 1e6, higher_is_better=True) > 0.15
    # What the probabilities of a float32 softmax of one and the same network scatter by.
    random = np.random.default_rng(0)
    logits = random.normal(size=(200, 10)).astype(np.float32) * 3
    jittered = [logits + random.normal(size=logits.shape).astype(np.float32) * 1e-7 for _ in "123"]
    samples = np.stack([np.exp(x) / np.exp(x).sum(1, keepdims=True) for x in jittered])
    assert samples.var(axis=0).sum(axis=1).max() < RESOLUTION


def test_the_examples_hold() -> None:
    assert doctest.testmod(retention).failed == 0
