"""Closings are functions of sums: however the data are spread over clients, the result is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pytest
from crepes import ConformalClassifier
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import multivariate_normal

from bfl.closing import Closed, closings
from bfl.closing.base import FEATURE_BOUND, HEAD, Closing, Examples, Known, with_one
from bfl.closing.bayesian_head import FACTOR, LIKELIHOOD, PRECISION, PRIOR_MEAN, BayesianHead, draws
from bfl.closing.chain import asked, folded, length, measured, told
from bfl.closing.closed import begun
from bfl.closing.conformal import Conformal
from bfl.closing.curvature import Form, curvature, measure, packed, unpacked
from bfl.closing.feature_density import FeatureDensity, scores
from bfl.closing.temperature import GRID, TEMPERATURE, Temperature

FEATURES, CLASSES = 4, 3
FORMS: tuple[Form, ...] = ("full", "blocks", "kronecker", "bound")


def examples(seed: int, count: int = 400) -> Examples:
    """Return features of overlapping classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=count)
    centres = np.random.default_rng(99).normal(size=(CLASSES, FEATURES))
    return Examples(with_one(centres[labels] + rng.normal(size=(count, FEATURES))), labels, CLASSES)


def parts_of(whole: Examples, sizes: list[int]) -> list[Examples]:
    """Return the examples split into parts of some sizes, and the rest."""
    cuts = np.minimum(np.cumsum(sizes), len(whole.labels))
    pairs = zip(np.split(whole.features, cuts), np.split(whole.labels, cuts), strict=True)
    return [Examples(f, y, CLASSES) for f, y in pairs if len(y)]


def start(*chain: object) -> dict[str, np.ndarray]:
    """Return what is known before the first round."""
    head = 0.1 * np.random.default_rng(5).normal(size=(FEATURES + 1, CLASSES))
    return dict(begun(head, from_head=True))


def rounds(
    chain: Sequence[Closing],
    known: Known,
    *clients: Examples,
    changed: Callable[[Known, np.ndarray], np.ndarray] = lambda _, sums: sums,
) -> Iterator[dict[str, Any]]:
    """Yield what is known after each round, of sums that may be changed on the way."""
    while parts := asked(chain, known):
        sums = sum(measured(chain, told(chain, known), each, each) for each in clients)
        features, classes = clients[0].features.shape[1] - 1, clients[0].classes
        assert sums.shape == (length(parts, features, classes),)
        known = dict(folded(chain, known, changed(known, sums), features, classes))
        yield known


def closed(
    chain: Sequence[Closing], known: Known, *clients: Examples, **how: Any
) -> dict[str, Any]:
    """Return what is known after the last round."""
    return [dict(known), *rounds(chain, known, *clients, **how)][-1]


def all_closings() -> list[object]:
    """Return every closing, with settings that small data allow."""
    return [
        *(
            BayesianHead(head_curvature=form, closing_rounds=4, closing_tolerance=0.0)
            for form in FORMS
        ),
        *(closings.create(n, {"density-least-count": 1}) for n in closings.names()),
    ]


@pytest.mark.parametrize("closing", all_closings(), ids=lambda closing: f"{closing.name} {closing}")
@settings(max_examples=10, deadline=None)
@given(sizes=st.lists(st.integers(1, 120), min_size=1, max_size=4), reverse=st.booleans())
def test_the_split_over_clients_makes_no_difference(closing, sizes, reverse) -> None:
    whole = examples(0)
    clients = parts_of(whole, sizes)
    one = closed((closing,), start(), whole)
    many = closed((closing,), start(), *(clients[::-1] if reverse else clients))
    assert one.keys() == many.keys()
    for name, value in one.items():
        if "factor" in name or "density" in name or "rotation" in name:
            continue  # eigenvectors have a sign of their own; what they make is compared below
        np.testing.assert_allclose(many[name], value, rtol=1e-9, atol=1e-9)
    for name, value in scores(one, [whole.features[:, :-1]]).items():
        found = scores(many, [whole.features[:, :-1]])[name]
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-9)


def lies(seed: int, size: int) -> np.ndarray:
    """Return sums that no data have and that no bound refuses."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-30, np.log10(400 * FEATURE_BOUND**2))
    kinds = (rng.normal(size=size), -rng.random(size), np.zeros(size), rng.choice([-1, 1], size))
    return np.clip(scale * kinds[seed % 4], -400 * FEATURE_BOUND**2, 400 * FEATURE_BOUND**2)


@pytest.mark.parametrize("honest", [False, True])
@pytest.mark.parametrize("closing", all_closings(), ids=lambda closing: f"{closing.name} {closing}")
def test_a_client_that_lies_leaves_finite_predictions(closing, honest: bool) -> None:
    whole = examples(3)
    for seed in range(60):

        def changed(_: Any, sums: np.ndarray, seed: int = seed) -> np.ndarray:
            lie = lies(seed, sums.size).astype(np.float32)
            return lie + sums if honest else lie

        known = closed((closing,), start(), whole, changed=changed)
        assert all(np.isfinite(value).all() for value in known.values())
        found = Closed(known).predict(whole.features[:, :-1], samples=3, seed=0)
        assert np.isfinite(found.log_mean_probability).all()
        assert all(np.isfinite(value).all() for value in found.scores.values())


def test_no_density_where_no_client_has_enough_of_any_class() -> None:
    whole = examples(3, 9)
    known = closed((FeatureDensity(density_least_count=5),), start(), *parts_of(whole, [3, 3]))
    assert known["density-classes"] == 0
    assert not Closed(known).predict(whole.features[:, :-1], samples=1, seed=0).scores


@pytest.mark.parametrize("prior", ["pooled", "zero"])
@pytest.mark.parametrize("form", FORMS)
def test_newton_ends_at_the_mode_of_the_central_posterior(
    form: Form, prior: Literal["pooled", "zero"]
) -> None:
    """At the mode by a general optimizer, with the prior precision that was found."""
    whole = examples(1)
    head = BayesianHead(
        head_curvature=form, closing_rounds=600, head_prior=prior, closing_tolerance=0.0
    )
    known = closed((head,), start(), *parts_of(whole, [50, 130]))
    assert known[PRIOR_MEAN].any() == (prior == "pooled")
    precision = float(known[PRECISION])
    shape = known[HEAD].shape

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        head = flat.reshape(shape)
        log_p = log_softmax(whole.features @ head, axis=1)
        residual = np.exp(log_p)
        residual[np.arange(400), whole.labels] -= 1
        away = head - known[PRIOR_MEAN]
        value = -log_p[np.arange(400), whole.labels].sum() + precision * (away**2).sum() / 2
        return value, (whole.features.T @ residual + precision * away).ravel()

    best = minimize(loss, np.zeros(np.prod(shape)), jac=True, options={"gtol": 1e-10})
    np.testing.assert_allclose(known[HEAD].ravel(), best.x, atol=2e-5)


def test_the_full_hessian_is_the_derivative_of_the_gradient() -> None:
    whole = examples(2, 50)
    head = np.random.default_rng(3).normal(size=(FEATURES + 1, CLASSES))

    def gradient(flat: np.ndarray) -> np.ndarray:
        p = softmax(whole.features @ flat.reshape(CLASSES, -1).T, axis=1)
        return (p.T @ whole.features).ravel()

    flat, step = head.T.ravel(), 1e-6
    numeric = np.stack(
        [(gradient(flat + step * e) - gradient(flat - step * e)) / (2 * step) for e in np.eye(15)]
    )
    p = softmax(whole.features @ head, axis=1)
    found = curvature("full", measure("full", p, whole.features), 50, CLASSES)
    np.testing.assert_allclose(found.blocks[0], numeric, atol=1e-7)
    diagonal = curvature("blocks", measure("blocks", p, whole.features), 50, CLASSES)
    for number, block in enumerate(diagonal.blocks):
        own = slice(5 * number, 5 * number + 5)
        np.testing.assert_allclose(block, 1.5 * numeric[own, own], atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 10.0))
def test_bounds_of_the_hessian(seed: int, scale: float) -> None:
    """H is at most twice its diagonal blocks, and at most Böhning's bound, for whatever weights."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(20, FEATURES + 1))
    p = softmax(scale * rng.normal(size=(20, CLASSES)), axis=1)
    full = curvature("full", measure("full", p, phi), 20, CLASSES).blocks[0]
    blocks = np.zeros_like(full)
    for number, block in enumerate(curvature("blocks", measure("blocks", p, phi), 20, 3).blocks):
        own = slice(5 * number, 5 * number + 5)
        blocks[own, own] = block
    bound = np.kron(0.5 * (np.eye(3) - 1 / 3), phi.T @ phi)
    for above in (2 * blocks * (CLASSES - 1) / CLASSES, bound):
        assert np.linalg.eigvalsh(above - full).min() > -1e-9 * np.abs(above).max()


def test_draws_have_the_mean_and_covariance_of_the_laplace_approximation() -> None:
    whole = examples(4, 100)
    known = closed(
        (BayesianHead(head_curvature="full", closing_rounds=30, closing_tolerance=0.0),),
        start(),
        whole,
    )
    p = softmax(whole.features @ known[HEAD], axis=1)
    hessian = curvature("full", measure("full", p, whole.features), 100, CLASSES).blocks[0]
    expected = np.linalg.inv(hessian + float(known[PRECISION]) * np.eye(15))
    np.testing.assert_allclose(known[FACTOR][0] @ known[FACTOR][0].T, expected, atol=1e-9)
    drawn = np.stack([d.T.ravel() for d in draws(known, 20_000, np.random.default_rng(0))])
    np.testing.assert_allclose(drawn.mean(axis=0), known[HEAD].T.ravel(), atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.05 * np.abs(expected).max())


@pytest.mark.parametrize(("temperature", "widened"), [(1.0, 4), (2.0, 4), (1.0, 1)])
@pytest.mark.parametrize("form", FORMS)
def test_the_probit_approximation_is_that_of_draws(
    form: Form, temperature: float, widened: float
) -> None:
    """Its variances are those of the draws' logits around their mean, and it is near the draws'."""
    head = BayesianHead(head_curvature=form, closing_tolerance=0, head_predictions="probit")
    known = closed((head,), start(), examples(16, 40))
    known |= {TEMPERATURE: np.array(temperature), FACTOR: widened * known[FACTOR]}
    phi = examples(17, 200).features
    drawn = np.array([phi @ each for each in draws(known, 4000, np.random.default_rng(0))])
    apart = drawn - drawn.mean(axis=2, keepdims=True)
    variance = np.var(apart, axis=0) * CLASSES / (CLASSES - 1)
    expected = phi @ known[HEAD] / np.sqrt(temperature**2 + np.pi / 8 * variance)
    exact = softmax(drawn / temperature, axis=2).mean(axis=0)
    found = Closed(known).predict(phi[:, :-1], samples=1, seed=0).mean_probability
    np.testing.assert_allclose(found, softmax(expected, axis=1), atol=0.01)
    mode = softmax(phi @ known[HEAD] / temperature, axis=1)
    assert np.abs(found - exact).mean() < 0.85 * np.abs(mode - exact).mean()


def test_rounds_end_as_soon_as_the_log_posterior_stands_still() -> None:
    """After one round where it does from the beginning, and close to the mode from elsewhere."""
    whole = examples(15)

    def steps(head: np.ndarray, tolerance: float) -> list[dict[str, Any]]:
        chain = (BayesianHead(closing_rounds=60, closing_tolerance=tolerance),)
        return list(rounds(chain, begun(head, from_head=True), whole))

    exact = steps(start()[HEAD], 0.0)
    few = steps(start()[HEAD], 1e-3)
    assert len(exact) == 60
    assert 2 < len(few) < 12
    assert exact[-1][LIKELIHOOD] - few[-1][LIKELIHOOD] < 400 * 5e-3
    assert len(steps(few[-1][HEAD], 1e-3)) == 1
    far = steps(200 * np.random.default_rng(7).normal(size=(FEATURES + 1, CLASSES)), 1e-3)
    assert len(far) > len(few)


@pytest.mark.parametrize("widths", [(), (2, 5)])
def test_density_is_that_of_the_classes_gaussians(widths: tuple[int, ...]) -> None:
    """Against SciPy, by moments of all examples together: covariances are 0 between stages."""
    whole = examples(8, 900)
    rng = np.random.default_rng(3)
    stages = [rng.normal(size=(900, w)) + np.eye(CLASSES, w)[whole.labels] for w in widths]
    chain = (FeatureDensity(density_shrinkage=1e-6, density_features="stages"),)
    known = start()
    total = 0.0
    for part in np.split(np.arange(900), [100, 400]):
        one = Examples(
            whole.features[part], whole.labels[part], CLASSES, stages=[s[part] for s in stages]
        )
        total = total + measured(chain, {}, one, one)
    assert total.shape == (length(chain, FEATURES, CLASSES, widths),)
    known = dict(folded(chain, known, total, FEATURES, CLASSES, widths))
    parts = [whole.features[:, :-1], *stages]
    logs = np.log(np.bincount(whole.labels) / 900)[:, None] + np.zeros(900)
    away, of_all = np.zeros(CLASSES), 0.0
    for phi in parts:
        own = [phi[whole.labels == c] for c in range(CLASSES)]
        tied = sum(len(o) * np.cov(o.T, bias=True) for o in own) / 900
        ridge = 1e-6 * np.trace(tied) / phi.shape[1] * np.eye(phi.shape[1])
        logs += [
            multivariate_normal(o.mean(axis=0), np.cov(o.T, bias=True) + ridge).logpdf(phi)
            for o in own
        ]
        inverse = np.linalg.inv(tied + ridge)
        apart = [phi[0] - o.mean(axis=0) for o in own]
        away += [float(each @ inverse @ each) for each in apart]
        around = np.linalg.inv(np.cov(phi.T, bias=True) + ridge)
        of_all += float((phi[0] - phi.mean(axis=0)) @ around @ (phi[0] - phi.mean(axis=0)))
    found = scores(known, parts)
    np.testing.assert_allclose(found["feature-density"], -logsumexp(logs, axis=0))
    first = scores(known, [phi[:1] for phi in parts])
    np.testing.assert_allclose(first["mahalanobis"], away.min())
    np.testing.assert_allclose(first["relative-mahalanobis"], away.min() - of_all)
    predicted = Closed(known).predict(np.concatenate(parts, axis=1), samples=2, seed=0)
    np.testing.assert_allclose(predicted.scores["feature-density"], found["feature-density"])


def test_a_client_sends_no_sums_of_a_class_with_few_examples() -> None:
    few = Examples(with_one(np.ones((6, FEATURES))), np.array([0, 0, 0, 0, 0, 1]), CLASSES)
    sums = FeatureDensity(density_least_count=5).measure({}, few)
    assert sums["counts"].tolist() == [5, 0, 0]
    assert not sums["first"][1].any()
    assert not sums["second"][1].any()


def test_temperature_is_the_most_likely_one() -> None:
    whole = examples(9, 2000)
    known = closed((Temperature(),), start(), *parts_of(whole, [700]))
    logits = whole.features @ known[HEAD]

    def likelihood(t: float) -> float:
        return float(log_softmax(logits / t, axis=1)[np.arange(2000), whole.labels].sum())

    found = float(known[TEMPERATURE])
    assert likelihood(found) >= max(likelihood(found * 1.01), likelihood(found / 1.01))


@pytest.mark.parametrize(("margin", "end"), [(0.05, 0), (-3.0, -1)])
def test_a_temperature_beyond_the_grid_is_its_end(margin: float, end: int) -> None:
    own = Examples(with_one(np.full((5, 1), margin)), np.zeros(5, int), 2)
    known = {HEAD: np.array([[1.0, 0.0], [0.0, 0.0]])}
    found = folded((Temperature(),), known, measured((Temperature(),), known, own, own), 1, 2)
    assert float(found[TEMPERATURE]) == pytest.approx(GRID[end])


def test_conformal_sets_cover_what_they_promise() -> None:
    """Coverage of 200 draws of calibration data: within the bounds of 1/(n + 1) on average."""
    alpha, count = 0.1, 99
    chain = (Conformal(conformal_alpha=alpha),)
    covered, by_class = [], []
    for seed in range(200):
        both = examples(100 + seed, count + 400)
        calibration, test = parts_of(both, [count])
        known = closed(chain, start(), *parts_of(calibration, [30, 40]))
        found = Closed(known).sets(test.features[:, :-1])
        rows = np.arange(400)
        covered.append(found["conformal"][rows, test.labels].mean())
        by_class.append(found["conformal-by-class"][rows, test.labels].mean())
    # The deviation of the mean of 200 is about 0.002; bins of 1/1000 add as much.
    assert 1 - alpha - 0.01 < np.mean(covered) < 1 - alpha + 1 / (count + 1) + 0.015
    assert np.mean(by_class) > 1 - alpha - 0.01


def test_conformal_sets_are_those_of_crepes() -> None:
    """Of scores rounded up to edges of bins; at multiples of 1/(n + 1) theirs are larger."""
    alpha, whole, test = 0.1937, examples(14, 300), examples(15, 200).features
    known = closed((Conformal(conformal_alpha=alpha),), start(), whole)
    own, tested = (
        np.ceil(1000 * (1 - softmax(features @ known[HEAD], axis=1)))
        for features in (whole.features, test)
    )

    def crepes(own: np.ndarray, tested: np.ndarray) -> np.ndarray:
        fitted = ConformalClassifier().fit(own)
        return fitted.predict_set(tested, confidence=1 - alpha, smoothing=False) > 0

    of_true, sets = own[np.arange(300), whole.labels], Closed(known).sets(test[:, :-1])
    by_class = [crepes(of_true[whole.labels == c], tested[:, [c]]) for c in range(CLASSES)]
    np.testing.assert_array_equal(sets["conformal"], crepes(of_true, tested))
    np.testing.assert_array_equal(sets["conformal-by-class"], np.hstack(by_class))


def test_too_few_examples_for_alpha_give_whole_sets() -> None:
    known = closed((Conformal(conformal_alpha=0.01),), start(), examples(10, 50))
    assert Closed(known).sets(examples(11, 20).features[:, :-1])["conformal"].all()
    for number in range(2, 200):
        least = Conformal(conformal_alpha=1 / (number + 1))
        assert least.held_back_problem(number) is None
        assert least.held_back_problem(number - 1)


@pytest.mark.parametrize(("tolerance", "heads"), [(0.0, 3), (10.0, 1)])
def test_rounds_are_shared_where_they_can_be(tolerance: float, heads: int) -> None:
    """Density goes along with the head's first round; what rests on the final head waits."""
    chain = (
        BayesianHead(closing_rounds=3, closing_tolerance=tolerance),
        FeatureDensity(density_features="last"),
        Temperature(),
        Conformal(),
    )
    known, rounds = start(), []
    while parts := asked(chain, known):
        rounds.append([each.name for each in parts])
        sums = measured(chain, told(chain, known), examples(12), examples(13))
        assert sums.shape == (length(parts, FEATURES, CLASSES),)
        known = dict(folded(chain, known, sums, FEATURES, CLASSES))
    assert rounds == [
        ["bayesian-head", "feature-density"],
        *[["bayesian-head"]] * (heads - 1),
        ["temperature"],
        ["conformal"],
    ]


@pytest.mark.parametrize("side", [1, 2, 7])
def test_triangles_hold_symmetric_matrices(side: int) -> None:
    given_ = np.random.default_rng(side).normal(size=(side, side))
    matrix = given_ + given_.T
    np.testing.assert_array_equal(unpacked(packed(matrix)), matrix)
