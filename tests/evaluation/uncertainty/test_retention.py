"""Retention curves against all tie-breakings and orders, and gains of sorting over all orders."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.evaluation.uncertainty import retention_curve
from bfl.evaluation.uncertainty.retention import RESOLUTION, random_gain, retention_gain


def over_all_tie_breakings(values, uncertainty):
    """The mean of the curves of all orders in which the uncertainty does not decrease."""
    curves = []
    for order in itertools.permutations(range(len(values))):
        ranks = [uncertainty[i] for i in order]
        if ranks == sorted(ranks):
            kept = np.array([values[i] for i in order], dtype=float)
            curves.append(np.cumsum(kept) / np.arange(1, len(kept) + 1))
    return np.mean(curves, axis=0)


few_ranks = st.sampled_from([0.0, 0.1, 0.5, 2.0])
values = st.floats(-100, 100)
examples = st.lists(st.tuples(values, few_ranks), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(examples)
def test_equals_the_mean_over_all_tie_breakings(pairs):
    value, rank = zip(*pairs, strict=True)
    curve = retention_curve(value, rank)
    expected = over_all_tie_breakings(value, rank)
    np.testing.assert_allclose(curve.value, expected, rtol=1e-12, atol=1e-12)
    assert curve.area == pytest.approx(expected.mean(), rel=1e-12, abs=1e-12)
    assert curve.fraction.tolist() == [n / len(pairs) for n in range(1, len(pairs) + 1)]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 60, 5000]), st.integers(1, 300))
def test_order_of_the_data_does_not_change_a_bit(seed, count, ranks):
    random = np.random.default_rng(seed)
    value = random.exponential(size=count) * 10.0 ** random.integers(-6, 3, count)
    rank, order = random.integers(0, ranks, count) / 7.0, random.permutation(count)
    one, other = retention_curve(value, rank), retention_curve(value[order], rank[order])
    assert one.value.tobytes() == other.value.tobytes()
    assert one.area == other.area


def test_one_example_and_a_negative_zero():
    curve = retention_curve([0.5], [3.0])
    assert (curve.fraction.tolist(), curve.value.tolist(), curve.area) == ([1.0], [0.5], 0.5)
    assert retention_curve([1, 0], [0.0, -0.0]).value.tolist() == [0.5, 0.5]


def test_the_curve_on_a_grid():
    curve = retention_curve([1, 1, 0, 0], [1, 2, 3, 4])
    np.testing.assert_allclose(
        curve.at([0.0, 0.1, 0.25, 0.5, 0.625, 0.75, 1.0]), [1, 1, 1, 1, 5 / 6, 2 / 3, 0.5]
    )
    np.testing.assert_array_equal(curve.at(curve.fraction), curve.value)
    for bad in ([-0.1], [1.1], [np.nan]):
        with pytest.raises(ValueError, match="fractions"):
            curve.at(bad)


@pytest.mark.parametrize(
    ("value", "rank"),
    [
        ([1.0, 0.0], [0.1, np.nan]),
        ([1.0, np.nan], [0.1, 0.2]),
        ([1.0, np.inf], [0.1, 0.2]),
        ([1.0, 0.0], [0.1]),
        ([], []),
        ([[1.0]], [[1.0]]),
    ],
)
def test_what_cannot_be_ranked_is_refused(value, rank):
    with pytest.raises(ValueError, match=r"NaN|finite|shape"):
        retention_curve(value, rank)


def test_the_control_is_the_root_mean_square_over_all_orders():
    values = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 0.5, 2.0])
    found = [
        retention_gain(values[list(order)], np.arange(1.0, 8.0), higher_is_better=True)
        for order in itertools.permutations(range(7))
    ]
    assert np.mean(found) == pytest.approx(0.0, abs=1e-12)
    assert random_gain(values) == pytest.approx(np.sqrt(np.mean(np.square(found))))


def test_a_gain_is_positive_where_the_uncertainty_knows():
    values, ranks = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.1, 0.2, 0.3, 0.4])
    assert retention_gain(values, ranks, higher_is_better=True) > 0.2
    assert retention_gain(values, -ranks + 1, higher_is_better=True) < -0.2
    assert retention_gain(1 - values, ranks, higher_is_better=False) == pytest.approx(
        retention_gain(values, ranks, higher_is_better=True)
    )


def test_rounding_noise_gains_nothing_however_well_it_sorts():
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
