"""Honest sums pass, whatever they are of; sums of the same examples that were changed do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_closings import CLASSES, FEATURES, FORMS, all_closings, examples, start

from bfl.closing.base import HEAD, Closing, Examples, with_one
from bfl.closing.bayesian_head import BayesianHead
from bfl.closing.chain import asked, greatest, implausible, measured, told
from bfl.closing.curvature import packed
from bfl.closing.feature_density import FeatureDensity
from bfl.closing.temperature import Temperature

FACTORS = {"examples": [1.5, 0.0, -1.0], "counts": [2.0, 0.9, -1.0], "second": [0.0, -1.0]}
"""By what an honest client's sums of a name are multiplied; others by −1."""

DENSITY = FeatureDensity(density_least_count=1, density_features="last")
"""A density whose sums are in one message with the last layer's."""


def checking() -> list[Closing]:
    """Return the closings that look at what clients send; the others believe it."""
    return [each for each in all_closings() if type(each).implausible is not Closing.implausible]


@pytest.mark.parametrize("closing", checking(), ids=lambda closing: f"{closing.name} {closing}")
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 60),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 30.0, 1e30]),
    sharp=st.sampled_from([0.0, 1.0, 100.0]),
)
def test_honest_sums_pass_and_changed_ones_do_not(closing, seed, count, scale, sharp) -> None:
    made = examples(seed, count)
    own = Examples(with_one(scale * made.features[:, :-1]), made.labels, CLASSES)
    begin = start()
    begin[HEAD] = sharp * begin[HEAD]
    vector = measured((closing,), told((closing,), begin), own, own)
    rounded = vector.astype(np.float32).astype(np.float64)

    def problem(sums: np.ndarray, examples: int = count) -> str | None:
        return implausible((closing,), begin, sums, FEATURES, CLASSES, examples)

    assert problem(vector) is None
    assert problem(rounded) is None
    place, light = 0, False
    for name, shape in closing.shapes(FEATURES, CLASSES).items():
        part = slice(place, place + int(np.prod(shape)))
        place = part.stop
        if name not in ("first", "second", "log-likelihood", "by-temperature"):  # of any size
            added = vector.copy()
            added[part.stop - 1] += 3 * count
            assert problem(added), name
        light = light or bool(np.abs(vector[part]).max() < 1e-2 * count)
        for factor in FACTORS.get(name, [-1.0]):
            changed = vector.copy()
            changed[part] *= factor
            assert problem(changed) or light or name in ("gradient", "first"), (name, factor)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beside", [(), (DENSITY,)])
@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(1, 60),
    size=st.sampled_from([0.3, 5.0, 400.0]),
    margin=st.sampled_from([0.1, 3.0, 60.0]),
    right=st.booleans(),
)
def test_the_largest_honest_sums_pass_and_lies_beyond_them_do_not(
    form, beside, count, size, margin, right
) -> None:
    """Copies of one example, for which Cauchy's and Schwarz's inequality is an equality."""
    chain = (BayesianHead(head_curvature=form), *beside)
    features, labels = np.full((count, FEATURES), size / 2), np.full(count, 0 if right else 1)
    own = Examples(with_one(features), labels, CLASSES)
    begin = {**start(), HEAD: np.zeros((FEATURES + 1, CLASSES))}
    begin[HEAD][-1, 0] = margin
    vector = measured(chain, told(chain, begin), own, own)
    parts, place = {}, 0
    for each in chain:
        for name, shape in each.shapes(FEATURES, CLASSES).items():
            parts[name] = slice(place, place + int(np.prod(shape)))
            place += int(np.prod(shape))

    def problem(**changes: np.ndarray | float) -> str | None:
        lie = vector.copy()
        for name, value in changes.items():
            lie[parts[name.replace("_", "-")]] = value
        return implausible(chain, begin, lie, FEATURES, CLASSES, count)

    assert problem() is None
    gradient = vector[parts["gradient"]].reshape(FEATURES + 1, CLASSES)
    surely = -vector[parts["log-likelihood"]][0] < 1e-3 * count
    # As for a wrong label of each example, where ℓ says that all are nearly right.
    wrong = np.outer([*(FEATURES * [size / 2]), 1.0], [-1.0, 1.0, 0.0]) * count
    assert problem(gradient=wrong.ravel()) or not surely
    if right or margin == 0.1:
        assert problem(gradient=(4.0 * count + gradient * 0 + [1, -1, 0]).ravel())
    else:
        further = 1.05 if margin == 60.0 else 1.3
        of_bias = gradient.copy()
        of_bias[-1] *= further
        assert problem(gradient=of_bias.ravel())
        if beside or form in ("kronecker", "bound"):
            longer = gradient.copy()
            longer[0] *= further
            assert problem(gradient=longer.ravel())
    if form in ("full", "blocks") and beside:
        width = (FEATURES + 1) * CLASSES if form == "full" else FEATURES + 1
        far = packed(np.diag([0.3 * count * size**2] * width))
        name = "hessian" if form == "full" else "by_class"
        assert problem(**{name: np.tile(far, 1 if form == "full" else CLASSES)})
    if form == "blocks" and margin == 60.0 and right:
        flat = packed(np.diag([0.0] * FEATURES + [0.1 * count]))
        assert problem(by_class=np.tile(flat, CLASSES))


def test_moments_without_a_root_are_refused() -> None:
    """Of features of zero length in one direction, which two by two are no more than alike."""
    density = (DENSITY,)
    own = Examples(with_one(np.ones((10, FEATURES))), np.zeros(10, int), CLASSES)
    vector = measured(density, {}, own, own)
    one = np.full((FEATURES, FEATURES), -6.0) + 16.0 * np.eye(FEATURES)
    lie = vector.copy()
    start_of = CLASSES + CLASSES * FEATURES
    assert np.linalg.eigvalsh(one)[0] < -1
    lie[CLASSES:start_of] = 0.0
    lie[start_of : start_of + one.size // 2 + FEATURES // 2] = packed(one)
    assert implausible(density, {}, vector, FEATURES, CLASSES, 10) is None
    assert implausible(density, {}, lie, FEATURES, CLASSES, 10)
    lie[start_of : start_of + one.size // 2 + FEATURES // 2] = packed(1.1e6 * 10 * np.eye(FEATURES))
    assert implausible(density, {}, lie, FEATURES, CLASSES, 10)


def test_moments_without_a_covariance_are_refused() -> None:
    """Means of 1 beside second moments of 1 and none mixed: each feature alone could be so."""
    density = (DENSITY,)
    own = Examples(with_one(np.ones((10, FEATURES))), np.zeros(10, int), CLASSES)
    lie = measured(density, {}, own, own)
    begin = CLASSES + CLASSES * FEATURES
    lie[begin : begin + FEATURES * (FEATURES + 1) // 2] = packed(10.0 * np.eye(FEATURES))
    assert implausible(density, {}, lie, FEATURES, CLASSES, 10)


def test_an_example_left_out_of_the_counts_leaves_the_gradients_bound() -> None:
    chain = (BayesianHead(), DENSITY)
    own = examples(0, 500)
    begin = start()
    vector = measured(chain, told(chain, begin), own, own)
    gradient, counts = (FEATURES + 1) * CLASSES, CLASSES
    at = sum(int(np.prod(shape)) for shape in chain[0].shapes(FEATURES, CLASSES).values())
    lie = vector.copy()
    wrong = np.zeros((FEATURES + 1, CLASSES))
    wrong[0, :2] = 4e5, -4e5
    lie[2 : 2 + gradient] = wrong.ravel()
    lie[1] = -500.0
    assert implausible(chain, begin, vector, FEATURES, CLASSES, 500) is None
    assert implausible(chain, begin, lie, FEATURES, CLASSES, 500)
    lie[at : at + counts] -= [0.0] * (counts - 1) + [1.0]
    assert implausible(chain, begin, lie, FEATURES, CLASSES, 500)


def test_shifted_images_may_have_longer_features_than_the_densitys() -> None:
    chain = (BayesianHead(head_shift=1), DENSITY)
    own, begin = examples(0, 50), start()
    begin[HEAD] = np.zeros_like(begin[HEAD])
    moved = Examples(with_one(30.0 * own.features[:, :-1]), own.labels, CLASSES)
    vector = measured(chain, told(chain, begin), replace(own, shifted=moved), own)
    assert implausible(chain, begin, vector, FEATURES, CLASSES, 50) is None
    alone = (BayesianHead(head_shift=0), DENSITY)
    assert implausible(alone, begin, vector, FEATURES, CLASSES, 50)


def test_no_example_adds_more_than_the_bound() -> None:
    """What clients' sums are refused by, and masked sums have room for."""
    far = Examples(with_one(np.full((3, FEATURES), 1e30)), np.array([0, 1, 2]), CLASSES)
    for closing in all_closings():
        known = {**start(), HEAD: np.full((FEATURES + 1, CLASSES), 1e6) * [1, 0, -1]}
        vector = measured((closing,), known, far, far)
        assert np.all(np.abs(vector) <= greatest(3))
        for lie in (np.nan, np.inf, 1.01 * greatest(3)) if vector.size else ():
            vector[-1] = lie
            assert implausible((closing,), known, vector, FEATURES, CLASSES, 3)


def test_the_bound_leaves_room_for_the_rounding_of_float32() -> None:
    """So many examples whose features are the longest have a sum that is rounded above it."""
    count = 101_003
    far = Examples(with_one(np.full((count, 1), 1e30)), np.zeros(count, int), 2)
    known = {HEAD: np.zeros((2, 2))}
    for closing in (BayesianHead(head_curvature="bound"), FeatureDensity()):
        sums = measured((closing,), known, far, far).astype(np.float32).astype(np.float64)
        assert sums.max() > greatest(count)
        assert implausible((closing,), known, sums, 1, 2, count) is None


def test_what_waits_begins_last_wherever_it_stands() -> None:
    """So the density's bound on features is in a message of the head's first round alone."""
    chain = (Temperature(), DENSITY, BayesianHead())
    assert [each.name for each in asked(chain, start())] == ["feature-density", "bayesian-head"]
    assert [each.name for each in asked((Temperature(),), start())] == ["temperature"]
