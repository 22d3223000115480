"""Honest sums pass, whatever they are of; sums of the same examples that were changed do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_closings import CLASSES, FEATURES, all_closings, data_of, start, sums_of

from bfl.closing.base import (
    HEAD,
    Closing,
    Examples,
    Known,
    Measurement,
    SumsRound,
    greatest,
    pack,
    with_one,
)
from bfl.closing.feature_density import FeatureDensity
from bfl.closing.heads import BayesianHead, GaussianHead

ANY_SIZE = ("first", "second", "log-likelihood", "gains")
"""Sums to which something can be added without their being impossible."""

OF_ANY_SIGN = ("first", "gains")

DENSITY = FeatureDensity(density_features="last")


def problem(chain, known: Known, sums: np.ndarray, own: Examples) -> str | None:
    return SumsRound.next_round(chain, known, own.sizes).find_problem(sums, len(own.labels))


@pytest.mark.parametrize("closing", all_closings())
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 60),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 30.0, 1e30]),
    sharp=st.sampled_from([0.0, 1.0, 100.0]),
)
def test_honest_sums_pass_and_changed_ones_do_not(closing, seed, count, scale, sharp) -> None:
    make, known, _ = data_of(closing)
    made, chain = make(seed, count), (closing,)
    of_numbers = closing.tasks == ("regression",)
    if not of_numbers:
        known = start(sharp)
    own = replace(made, features=with_one(scale * made.features[:, :-1]))
    while (following := SumsRound.next_round(chain, known, own.sizes)).measurements:
        vector = sums_of(chain, known, own, own)
        assert problem(chain, known, vector, own) is None
        rounded = vector.astype(np.float32).astype(np.float64)
        assert problem(chain, known, rounded, own) is None
        place = 0
        checked = (type(each).find_problem for each in following.measurements)
        believed = Measurement.find_problem in checked  # a measurement may believe what it is sent
        sums = [pair for each in following.measurements for pair in each.sums(own.sizes).items()]
        for name, shape in [] if believed else sums:
            part = slice(place, place + int(np.prod(shape)))
            place = part.stop
            if name not in ANY_SIZE:
                added = vector.copy()
                added[part.stop - 1] += 3 * count
                assert problem(chain, known, added, own), name
            light = np.abs(vector[part]).max() < 1e-2 * count
            of_density = name == "log-likelihood" and of_numbers  # may have any sign
            if name not in OF_ANY_SIGN and not light and not of_density:
                changed = vector.copy()
                changed[part] *= -1.0
                assert problem(chain, known, changed, own), name
        known = following.fold(known, vector)


@pytest.mark.parametrize(
    "second",
    [
        np.full((FEATURES, FEATURES), -6.0) + 16.0 * np.eye(FEATURES),  # two by two as if alike
        10.0 * np.eye(FEATURES),  # means of 1 beside it: each feature alone could be so
        1.1e7 * np.eye(FEATURES),  # longer than the bound
    ],
)
def test_moments_that_no_features_have_are_refused(second: np.ndarray) -> None:
    own = Examples(with_one(np.ones((10, FEATURES))), np.zeros(10, int), CLASSES)
    vector = sums_of((DENSITY,), start(), own, own)
    begin = CLASSES + CLASSES * FEATURES
    assert problem((DENSITY,), start(), vector, own) is None
    vector[begin : begin + FEATURES * (FEATURES + 1) // 2] = pack(second)
    assert problem((DENSITY,), start(), vector, own)


def far_examples(closing: Closing) -> tuple[Known, Examples]:
    """Return a last layer, and three examples, of which neither could be larger."""
    make, known, _ = data_of(closing)
    far = replace(make(0, 3), features=with_one(np.full((3, FEATURES), 1e30)))
    if closing.tasks == ("regression",):
        far = replace(far, targets=np.array([1e30, -1e30, 0.0]))
        return {HEAD: known[HEAD] * [1e6, 1.0]}, far
    return {**known, HEAD: np.full((FEATURES + 1, CLASSES), 1e6) * [1, 0, -1]}, far


@pytest.mark.parametrize("closing", [BayesianHead(), DENSITY, GaussianHead()])
def test_no_example_adds_more_than_the_bound(closing: Closing) -> None:
    """What clients' sums are refused by, and masked sums have room for."""
    known, far = far_examples(closing)
    vector = sums_of((closing,), known, far, far)
    assert np.all(np.abs(vector) <= greatest(3))
    assert problem((closing,), known, vector, far) is None
    for lie in (np.nan, np.inf, 1.01 * greatest(3)):
        vector[-1] = lie
        assert problem((closing,), known, vector, far)
