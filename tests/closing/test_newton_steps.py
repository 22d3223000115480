"""A round of the Bayesian last layer, by its formulas: the prior, the step, and when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from scipy.stats import multivariate_normal
from test_closings import CLASSES, FEATURES, closed, rounds

from bfl.closing.base import ENDED, HEAD, LONGEST, SUMMED, Examples, with_one
from bfl.closing.bayesian_head import (
    BEST,
    FACTOR,
    LIKELIHOOD,
    PRECISION,
    SHIFT_GAP,
    SLOPE,
    WHOSE,
    BayesianHead,
)
from bfl.closing.chain import ROUNDS, folded, measured, told
from bfl.closing.closed import begun
from bfl.closing.curvature import Curvature, Form, Local, curvature, measure

COUNT = 300
RNG = np.random.default_rng(21)
LABELS = RNG.integers(CLASSES, size=COUNT)
PHI = with_one(RNG.normal(size=(CLASSES, FEATURES))[LABELS] + RNG.normal(size=(COUNT, FEATURES)))
WHOLE = Examples(PHI, LABELS, CLASSES)
DIRECTION = RNG.normal(size=(FEATURES + 1, CLASSES))
DIRECTION -= DIRECTION.mean(axis=1, keepdims=True)


def after(known: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return what is known after a round of sums, around a prior mean of 0."""
    chosen = {"closing_rounds": 60, "closing_tolerance": 0.0, **settings}
    chain = (BayesianHead(head_curvature="full", head_prior="zero", **chosen),)
    return next(rounds(chain, known, WHOLE))


def newton(head: np.ndarray, precision: float) -> tuple[np.ndarray, float]:
    """Return the step to the mode of the log-posterior's second order, and its gain."""
    p = np.exp(log_softmax(PHI @ head, axis=1))
    hessian = curvature("full", measure("full", p, PHI), COUNT, CLASSES).blocks[0]
    slope = (PHI.T @ (np.eye(CLASSES)[LABELS] - p) - precision * head).T.ravel()
    step = np.linalg.solve(hessian + precision * np.eye(slope.size), slope)
    return step.reshape(CLASSES, -1).T, float(slope @ step / 2)


@pytest.mark.parametrize(("scale", "bounded"), [(1.0, True), (0.3, False), (0.0, False)])
def test_a_step_is_newtons_up_to_four_lengths_of_the_weights(scale: float, bounded: bool) -> None:
    head = scale * DIRECTION
    found = after(begun(head, from_head=True))
    step, _ = newton(head, float(found[PRECISION]))
    longest = 4 * max(np.linalg.norm(head), 1.0) / np.linalg.norm(step)
    assert (longest < 1) == bounded
    np.testing.assert_allclose(found[HEAD] - head, min(1.0, longest) * step, rtol=1e-6)


def test_the_rounds_end_below_a_gain_an_example() -> None:
    head = 0.3 * DIRECTION
    known = begun(head, from_head=True)
    _, gain = newton(head, float(after(known)[PRECISION]))
    for share, ends in ((0.99, False), (1.01, True)):
        found = after(known, closing_tolerance=share * gain / COUNT)
        assert (f"{ENDED}{BayesianHead.name}" in found) == ends
        assert np.allclose(found[HEAD], head) == ends


def test_a_quarter_is_left_of_a_step_after_which_the_log_posterior_is_lower() -> None:
    head, best = 0.3 * DIRECTION, 0.1 * DIRECTION
    known = begun(head, from_head=True)
    good = after(known)
    prior = float(good[PRECISION]) * ((head**2).sum() - (best**2).sum()) / 2
    for share, lower in ((0.99, True), (1.01, False)):
        # Likelier than the best weights in both cases, by less than the prior takes, or by more.
        before = {
            **known,
            BEST: best,
            LIKELIHOOD: good[LIKELIHOOD] - share * prior,
            WHOSE: good[WHOSE],
            SLOPE: 1e9 * (head - best),
        }
        expected = best + (head - best) / 4 if lower else good[HEAD]
        np.testing.assert_allclose(after(before)[HEAD], expected, rtol=1e-9)
        last = after(before, closing_rounds=1)
        np.testing.assert_allclose(last[HEAD], best if lower else head, rtol=1e-9)


@pytest.mark.parametrize(
    ("lie", "sharp"),
    [
        ("too good at first", 0.3),
        ("too good at first", 30.0),
        ("too bad later", 0.3),
        ("too bad later", 30.0),
        ("worse each time", 30.0),
        ("random", 0.3),
    ],
)
def test_no_log_likelihood_that_a_client_makes_up_holds_the_steps_up(
    lie: str, sharp: float
) -> None:
    """They end where they end without it, also from weights that steps overshoot from."""
    chain = (BayesianHead(head_curvature="full", closing_rounds=60, closing_tolerance=0.0),)
    rng = np.random.default_rng(0)

    def made_up(known: Mapping[str, Any], sums: np.ndarray) -> np.ndarray:
        number = int(known.get(f"{ROUNDS}{BayesianHead.name}", 0))
        sums[1] = {
            "too good at first": 0.0 if number == 0 else sums[1],
            "too bad later": sums[1] if number == 0 else -1e9,
            "worse each time": -1e5 * number,
            "random": -1e5 * rng.random(),
        }[lie]
        return sums

    start = begun(sharp * DIRECTION, from_head=True)
    found = closed(chain, start, WHOLE, changed=made_up)[HEAD]
    np.testing.assert_allclose(found, closed(chain, start, WHOLE)[HEAD], atol=1e-5)


@pytest.mark.parametrize("missing", [{1: 1}, {3: 1}, {1: 1, 2: 0}, {4: 0, 5: 1}])
def test_clients_that_are_missing_from_a_round_freeze_nothing(missing: dict[int, int]) -> None:
    """The log-likelihood of fewer examples, or of as many others, is no mark for later ones."""
    halves = [Examples(PHI[i::2], LABELS[i::2], CLASSES) for i in (0, 1)]
    chain = (BayesianHead(head_curvature="full", closing_rounds=12, closing_tolerance=0.0),)
    known: dict[str, Any] = dict(begun(0.3 * DIRECTION, from_head=True))
    for number in range(1, 13):
        there = [client for client in (0, 1) if client != missing.get(number)]
        sums = [measured(chain, told(chain, known), halves[i], halves[i]) for i in there]
        known[SUMMED] = np.array(there)
        known = dict(folded(chain, known, np.sum(sums, axis=0), FEATURES, CLASSES))
    p = np.exp(log_softmax(PHI @ known[HEAD], axis=1))
    away = known[HEAD] - 0.3 * DIRECTION
    slope = PHI.T @ (np.eye(CLASSES)[LABELS] - p) - known[PRECISION] * away
    assert np.abs(slope).max() < 1e-6
    hessian = curvature("full", measure("full", p, PHI), COUNT, CLASSES).blocks[0]
    expected = np.linalg.inv(hessian + known[PRECISION] * np.eye(len(hessian)))
    np.testing.assert_allclose(known[FACTOR][0] @ known[FACTOR][0].T, expected, atol=1e-8)


@pytest.mark.parametrize("by_heart", [False, True])
@pytest.mark.parametrize("most", [2, 12])
def test_shifted_images_take_over_where_training_knows_its_own_by_heart(
    by_heart: bool, most: int
) -> None:
    start = begun((8.0 if by_heart else 0.5) * DIRECTION, from_head=True)
    labels = (PHI @ DIRECTION).argmax(axis=1)
    moved = PHI + np.pad(RNG.normal(scale=0.3, size=(COUNT, FEATURES)), [(0, 0), (0, 1)])
    own, copies = Examples(PHI, labels, CLASSES), Examples(moved, labels, CLASSES)
    losses = [
        -log_softmax(each @ start[HEAD], axis=1)[np.arange(COUNT), labels].sum()
        for each in (PHI, moved)
    ]
    assert (losses[1] - losses[0] > 0.19 * COUNT) == by_heart
    found = closed((BayesianHead(closing_rounds=most),), start, replace(own, shifted=copies))
    seen = copies if by_heart and most > 2 else own
    expected = closed((BayesianHead(head_shift=0, closing_rounds=most),), start, seen)
    np.testing.assert_array_equal(found[HEAD], expected[HEAD])
    np.testing.assert_array_equal(found[FACTOR], expected[FACTOR])


@pytest.mark.parametrize(
    ("side", "known", "pixels"),
    [
        *((side, {}, pixels) for side, pixels in ((8, 0), (27, 0), (28, 1), (64, 2), (224, 2))),
        (28, {f"{ROUNDS}bayesian-head": 1, SHIFT_GAP: 0.18}, 0),
        (28, {f"{ROUNDS}bayesian-head": 1, SHIFT_GAP: 0.2}, 1),
        (28, {LONGEST: 1.0}, 0),
    ],
)
def test_copies_are_made_where_they_decide_or_are_used(
    side: int, known: dict[str, Any], pixels: int
) -> None:
    arrays = {name: np.array(value) for name, value in known.items()}
    assert BayesianHead().shift(arrays, side) == pixels
    assert BayesianHead(head_shift=1).shift(arrays, side) == 1
    assert BayesianHead(closing_rounds=2).shift({}, side) == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_precision_is_the_one_of_the_largest_evidence(seed: int) -> None:
    """Of ℓ + log N(W; M, δ⁻¹I) and the integral over W, each by brute force."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(5, 5))
    curved, gradient, away = root @ root.T + np.eye(5), 3 * rng.normal(size=5), rng.normal(size=5)
    found = Curvature(curved[None], np.eye(1))
    local = Local.of(found, -1.0, gradient[:, None], away[:, None])

    def evidence(precision: float) -> float:
        mean = away + np.linalg.solve(curved, gradient)
        top = -1.0 + gradient @ np.linalg.solve(curved, gradient) / 2
        both = np.linalg.inv(curved) + np.eye(5) / precision
        exact = multivariate_normal(np.zeros(5), both).logpdf(mean)
        return float(top + exact + (5 * np.log(2 * np.pi) - np.linalg.slogdet(curved)[1]) / 2)

    precision, value = local.most_probable()
    np.testing.assert_allclose(value, evidence(precision))
    assert value >= max(evidence(precision * each) for each in np.geomspace(0.01, 100, 21)) - 1e-9
    assert value > max(evidence(precision * 1.3), evidence(precision / 1.3)) + 1e-9


@pytest.mark.parametrize(("classes", "sharp"), [(2, 3.0), (2, 0.0), (3, 0.0), (10, 0.0)])
@pytest.mark.parametrize("form", ["full", "blocks"])
def test_the_evidence_is_that_of_the_whole_hessian(form: Form, classes: int, sharp: float) -> None:
    """Of two classes, or equally probable ones, by the Hessian example by example.

    It has no curvature where all classes move alike, and blocks by class have.
    """
    rng = np.random.default_rng(classes)
    phi, labels = rng.normal(size=(60, 5)), rng.integers(classes, size=60)
    centred = np.eye(classes) - 1 / classes
    head, own = sharp * rng.normal(size=(5, classes)) @ centred, rng.normal(size=(5, classes))
    p = softmax(phi @ head, axis=1)
    hessian = sum(
        np.kron(np.diag(q) - np.outer(q, q), np.outer(x, x)) for q, x in zip(p, phi, strict=True)
    )
    gradient, away = phi.T @ (np.eye(classes)[labels] - p), head - own @ centred
    slope, flat = gradient.T.ravel(), away.T.ravel()

    def evidence(precision: float) -> float:
        curved = hessian + precision * np.eye(len(flat))
        up = np.linalg.solve(curved, slope - precision * flat)
        prior = precision * ((flat + up) ** 2).sum() + np.linalg.slogdet(curved / precision)[1]
        return float(-7.0 + slope @ up - up @ hessian @ up / 2 - prior / 2)

    found = curvature(form, measure(form, p, phi), 60, classes)
    precision, value = Local.of(found, -7.0, gradient, away).most_probable()
    np.testing.assert_allclose(value, evidence(precision), rtol=1e-9)
    around = np.geomspace(precision / 100, precision * 100, 41)
    assert value >= max(evidence(float(each)) for each in around) - 1e-9


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), classes=st.integers(2, 8), sharp=st.sampled_from([0.1, 1.0, 9.0]))
def test_the_bounds_scale_is_no_less_than_the_trace_of_the_curvature(
    seed: int, classes: int, sharp: float
) -> None:
    rng = np.random.default_rng(seed)
    logits, labels = sharp * rng.normal(size=(30, classes)), rng.integers(classes, size=30)
    log_p = log_softmax(logits, axis=1)
    probability, phi = np.exp(log_p), with_one(np.zeros((30, 0)))
    likelihood = log_p[np.arange(30), labels].sum()
    exact = curvature("full", measure("full", probability, phi), 30, classes).blocks[0]
    sums = measure("bound", probability, phi)
    bound = curvature("bound", sums, 30, classes, likelihood=likelihood)
    assert np.trace(exact) <= bound.scale * bound.blocks.sum() * (1 + 1e-9)
    assert bound.scale <= 1.0


def test_the_bounds_steps_go_on_where_the_pooled_layer_explains_little() -> None:
    """As by two classes a client: the bound alone as what data determine ends after one round."""
    rng = np.random.default_rng(0)
    labels, centres = rng.integers(10, size=400), rng.normal(size=(10, 20))
    phi = with_one(centres[labels] + rng.normal(size=(400, 20)))
    data = Examples(phi, labels, 10)
    best = np.concatenate([centres.T, -(centres**2).sum(axis=1)[None] / 2])
    head = 0.7 * best + 0.6 * rng.normal(size=(21, 10))
    chain = (BayesianHead(head_curvature="bound", closing_rounds=40),)
    found = [known[LIKELIHOOD] for known in rounds(chain, begun(head, from_head=True), data)]
    assert len(found) > 5
    assert found[-1] > 0.6 * found[0]


def test_a_step_that_overshoots_is_taken_back() -> None:
    """Weights so large that every probability is 0 or 1, and no curvature is left."""
    head = 200 * np.random.default_rng(7).normal(size=(FEATURES + 1, CLASSES))
    found = list(rounds((BayesianHead(closing_rounds=25),), begun(head, from_head=True), WHOLE))
    likelihoods = [known[LIKELIHOOD] for known in found]
    assert np.isfinite(found[-1][HEAD]).all()
    assert likelihoods[-1] > -COUNT < likelihoods[-1] > likelihoods[0]
