"""Sums with privacy's noise: how far one example moves them, how much noise they get, what is left.

Neighbours are data sets of which one lacks an example: with a known N, it adds nothing (zero-out).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from test_closings import CLASSES, FEATURES, FORMS, in_form, initial, sums_of

from bfl.closing import Closed
from bfl.closing.base import DEVIATION, LONGEST, Examples, Sizes, SumsRound, packed, with_one
from bfl.closing.conformal import Conformal, scores
from bfl.closing.feature_density import FeatureDensity
from bfl.closing.heads import PRECISION, repaired

CHAINS = [(in_form(form), FeatureDensity(density_features="last"), Conformal()) for form in FORMS]

rows = st.lists(
    st.one_of(
        st.floats(-1e3, 1e3), st.sampled_from([0.0, 1e30, -1e30, float("nan"), float("inf")])
    ),
    min_size=FEATURES,
    max_size=FEATURES,
)


def examples(features: Any, labels: Any, longest: float) -> Examples:
    """Return examples as a client has them under noise."""
    return Examples(with_one(features, longest), np.asarray(labels), CLASSES, noised=True)


@pytest.mark.parametrize("chain", CHAINS, ids=FORMS)
@settings(max_examples=60, deadline=None)
@given(
    features=st.lists(rows, min_size=2, max_size=6),
    seed=st.integers(0, 10_000),
    sharp=st.sampled_from([0.0, 1.0, 1e3, 1e9]),
    longest=st.sampled_from([1e-3, 0.3, 1.0, 10.0, 999.0]),
)
def test_no_example_moves_the_sums_by_more_than_the_unit_of_the_noise(
    chain, features, seed, sharp, longest
) -> None:
    """In every message, be it one that is trained on or one that is held back."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=len(features))
    head = sharp * rng.normal(size=(FEATURES + 1, CLASSES))
    known = {**initial(head), LONGEST: np.array(longest)}
    whole = examples(features, labels, longest)
    while (following := SumsRound.following(chain, known, whole.sizes)).measurements:
        unit, root = following.deviations(longest)
        vector = sums_of(chain, known, whole, whole)
        assert np.isfinite(vector).all()
        for left_out in range(len(features)):
            rest = np.arange(len(features)) != left_out
            some = Examples(whole.features[rest], labels[rest], CLASSES, noised=True)
            moved = vector - sums_of(chain, known, some, some)
            # Numbers of examples are known, and stay when one of them adds nothing.
            assert set(moved[unit == 0]) <= {0.0, 1.0}
            slack = 1e-11 * np.abs(vector[unit > 0]).max() / unit[unit > 0].min()
            assert np.linalg.norm(moved[unit > 0] / unit[unit > 0]) <= 1.0 + slack
        sums = [s for m in following.measurements for s in m.sums(whole.sizes).values()]
        assert root**2 == pytest.approx(sum(each.longest > 0 for each in sums))
        known = dict(following.fold({**known, DEVIATION: np.array(root)}, vector))


def greatest_length(form: str, classes: int) -> float:
    """Return the bound of an example's part of the curvature, of features of length 1."""
    curvature = in_form(form).measurements()[0]
    return curvature.sums(Sizes(FEATURES, classes), 0.0)["curvature"].longest


@pytest.mark.parametrize("form", FORMS)
def test_the_lengths_are_reached_or_nearly(form: str) -> None:
    """By brute force over probabilities: a bound far too large would be noise for nothing."""
    rng = np.random.default_rng(0)
    drawn = softmax(rng.normal(size=(4000, CLASSES)) * rng.exponential(5, size=(4000, 1)), axis=1)
    even = np.array([[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    far = np.array([[1.0, 0.0, 0.0, 0.0, 0.0]])
    most = 0.0
    for p in np.concatenate([drawn, even]):
        hessian = packed(np.kron(np.diag(p) - np.outer(p, p), far.T @ far))
        most = max(most, float(np.linalg.norm(hessian if form == "full" else p * (1 - p))))
    bound, least = greatest_length(form, CLASSES), 0.7 if form == "full" else 1.0 - 1e-12
    assert least * bound <= most <= bound * (1.0 + 1e-12)


@settings(max_examples=200, deadline=None)
@given(shares=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12).filter(any))
def test_no_probabilities_have_a_longer_diagonal_of_the_curvature(shares: list[float]) -> None:
    p = np.array(shares) / np.sum(shares)
    assert np.linalg.norm(p * (1 - p)) <= greatest_length("blocks", len(p)) * (1 + 1e-12)


def test_noise_leaves_a_sound_curvature() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(60, 60))
    noise = (np.triu(noise) + np.triu(noise, 1).T) * 3.0
    signal = np.diag(np.concatenate([np.full(5, 1e4), np.zeros(55)]))
    [values] = np.linalg.eigvalsh(repaired((signal + noise)[None], 3.0))
    assert values.min() >= 2 * 3.0 * np.sqrt(60) - 1e-9
    assert np.linalg.eigvalsh(noise).max() == pytest.approx(2 * 3.0 * np.sqrt(60), rel=0.1)
    assert values[-5:] == pytest.approx(1e4, rel=0.02)
    np.testing.assert_array_equal(repaired(signal[None], 0.0), [signal])


def closed(chain: Any, data: Examples, multiplier: float) -> dict[str, Any]:
    """Return what a chain finds under noise, as clients and server do it."""
    rng = np.random.default_rng(2)
    head = 0.1 * rng.normal(size=(FEATURES + 1, CLASSES))
    known = {**initial(head), LONGEST: np.array(5.0)}
    while (following := SumsRound.following(chain, known, data.sizes)).measurements:
        unit, root = following.deviations(5.0)
        sums = sums_of(chain, known, data, data)
        sums += multiplier * unit * rng.normal(size=len(sums))
        known[DEVIATION] = np.array(multiplier * root)
        known = dict(following.fold(known, sums))
    return known


@pytest.mark.parametrize("chain", CHAINS, ids=FORMS)
@pytest.mark.parametrize("multiplier", [1e-6, 1.0, 100.0, 1e6])
def test_any_noise_leaves_predictions(chain: Any, multiplier: float) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=3000)
    centres = np.array([[3.0, 0, 0, 0], [0, 3.0, 0, 0], [0, 0, 3.0, 0]])
    features = centres[labels] + rng.normal(size=(3000, FEATURES)) / 2
    known = closed(chain, examples(features, labels, 5.0), multiplier)
    assert all(np.isfinite(value).all() for name, value in known.items() if name != PRECISION)
    predictions = Closed(known).predict(features)
    assert np.isfinite(predictions.log_mean_probability).all()
    if multiplier <= 1.0:
        assert np.mean(predictions.predicted == labels) > 0.95
        far = Closed(known).predict(-features).scores["feature-density"]
        near = predictions.scores["feature-density"]
        assert np.mean(far > np.quantile(near, 0.95)) > 0.9
    if multiplier == 1e6:  # a candidate is picked for a gain that noise alone would not give
        assert not known["from-head"]


def test_under_noise_no_class_is_left_out_by_its_count() -> None:
    """A count that decides what is sent would tell of one example, however much noise there is."""
    one = examples([[1.0, 2.0, 0.0, 0.0]], [1], 5.0)
    sums = sums_of((FeatureDensity(),), {}, one, one)
    np.testing.assert_array_equal(sums[:CLASSES], [0, 1, 0])


def test_noised_prediction_sets_cover_as_often_as_is_promised() -> None:
    """An example moves one count; without noise the edge is the bin's, and with it no lower."""
    rng = np.random.default_rng(6)
    chain = (Conformal(conformal_alpha=0.1),)
    labels = rng.integers(CLASSES, size=6000)
    features = np.eye(CLASSES, FEATURES)[labels] * 2 + rng.normal(size=(6000, FEATURES))
    data = examples(features, labels, 9.0)
    known = {**initial(np.eye(FEATURES + 1, CLASSES)), LONGEST: np.array(9.0)}
    following = SumsRound.following(chain, known, data.sizes)
    unit, root = following.deviations(9.0)
    own = Examples(data.features[:3000], labels[:3000], CLASSES, noised=True)
    sums = sums_of(chain, known, own, own)
    less = Examples(own.features[1:], own.labels[1:], CLASSES, noised=True)
    assert np.abs(sums - sums_of(chain, known, less, less)).sum() == 1.0 == root
    assert unit == pytest.approx(np.ones(CLASSES * 1000))
    right = scores(known, data.features)[np.arange(6000), labels]
    exact = np.sort(right[:3000])[int(np.ceil(3001 * 0.9)) - 1]
    thresholds, missed = [], []
    for multiplier in (0.0, *(30 * [3.0]), 1e4):
        after = {**known, DEVIATION: np.array(multiplier * root)}
        noised = sums + multiplier * unit * rng.normal(size=len(sums))
        after = following.fold(after, noised)
        thresholds.append(float(after["conformal-threshold"]))
        missed.append(np.mean(right[3000:] > thresholds[-1]))
        by_class = after["conformal-thresholds"][labels[3000:]]
        assert np.mean(right[3000:] > by_class) < 0.11
    assert thresholds[0] == pytest.approx(np.ceil(exact * 20) / 20)
    assert max(missed) < 0.11
    assert min(thresholds) == thresholds[0] < max(thresholds[1:-1]) < thresholds[-1] == 1.0
