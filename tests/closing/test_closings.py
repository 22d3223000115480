"""Closings are functions of sums, and examples that nobody trained on decide in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from crepes import ConformalClassifier
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax
from scipy.stats import kstest, multivariate_normal, norm

from bfl.closing import Closed, closings, feature_density
from bfl.closing.base import (
    FEATURE_BOUND,
    FROM_HEAD,
    HEAD,
    Closing,
    Examples,
    Known,
    SumsRound,
    held_back_count,
    with_one,
)
from bfl.closing.conformal import Conformal
from bfl.closing.feature_density import MIXES, UNFAMILIAR, FeatureDensity, density
from bfl.closing.heads import (
    AFTER,
    BEFORE,
    CANDIDATES,
    LEAST_LIKELIHOOD,
    OWN,
    PRECISION,
    SHARPENING,
    TEMPERATURE,
    TEMPERATURES,
    VALUES,
    VECTORS,
    BayesianHead,
    GaussianHead,
    along_blocks,
    blocks_of,
    curvature_of,
    draw_logits,
    normals,
    root_of_covariance,
)
from bfl.data.datasets.encoding import Column
from bfl.evaluation.prediction import PredictionStatistics
from bfl.evaluation.regression import MixtureStatistics, covered, negative_log_likelihoods

FEATURES, CLASSES = 4, 3
FORMS = ("full", "blocks")
PLANE = np.array([1.0, -0.5, 0.3, 0.8, 0.2])


class InBlocks(BayesianHead):
    most_exact = 0


def in_form(form: str) -> BayesianHead:
    return BayesianHead() if form == "full" else InBlocks()


def examples(seed: int, count: int = 400, **more: Any) -> Examples:
    """Return features of overlapping classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=count)
    centres = np.random.default_rng(99).normal(size=(CLASSES, FEATURES))
    features = centres[labels] + rng.normal(size=(count, FEATURES))
    return Examples(with_one(features), labels, CLASSES, **more)


def numbers(seed: int, count: int = 400) -> Examples:
    """Return targets around a plane, whose noise grows with a feature and has heavy tails."""
    rng = np.random.default_rng(seed)
    features = with_one(rng.normal(size=(count, FEATURES)))
    noise = 0.5 * np.exp(0.5 * features[:, 0]) * rng.standard_t(4, count)
    targets = features @ PLANE + noise
    return Examples(features, (targets > 0).astype(int), 2, targets=targets)


def split(whole: Examples, *sizes: int) -> list[Examples]:
    """Return the examples split into parts of some sizes, and the rest."""
    ends = [*np.minimum(np.cumsum([0, *sizes]), len(whole.labels)), len(whole.labels)]
    parts = [whole.take(slice(*ends[i : i + 2])) for i in range(len(ends) - 1)]
    return [each for each in parts if len(each.labels)]


def initial(head: np.ndarray) -> dict[str, Any]:
    """Return what is known before the first round."""
    return {HEAD: head, FROM_HEAD: np.array(True)}


def start(scale: float = 0.1) -> dict[str, Any]:
    return initial(scale * np.random.default_rng(5).normal(size=(FEATURES + 1, CLASSES)))


def start_of_numbers(off: float = 0.2) -> dict[str, Any]:
    """Return a last layer of a mean that is off, and of too little noise."""
    return initial(np.stack([PLANE + off, [0, 0, 0, 0, -2.0]], 1))


def data_of(closing: Closing) -> tuple[Callable[..., Examples], dict[str, Any], Any]:
    """Return what makes data for a closing, what is known of them, and what sums up samples."""
    if closing.tasks == ("regression",):
        return numbers, start_of_numbers(), MixtureStatistics(Column("y"))
    return examples, start(), PredictionStatistics()


def sums_of(chain: Sequence[Closing], known: Known, own: Examples, kept: Examples) -> np.ndarray:
    """Return a client's sums in the next round."""
    following = SumsRound.next_round(chain, known, own.sizes)

    def examples(held_back: bool) -> Examples | None:
        seen = kept if held_back else own
        return seen if len(seen.labels) else None

    return following.measure(following.inputs(known), examples)


def close(
    chain: Sequence[Closing],
    known: Known,
    clients: Sequence[Examples],
    kept: Sequence[Examples] = (),
    changed: Callable[[np.ndarray], np.ndarray] = lambda sums: sums,
) -> dict[str, Any]:
    """Return what is known after the last round; clients hold back what they train on, or ``kept``.

    Args:
        changed: Makes of the sums of all clients what the server gets.
    """
    while (following := SumsRound.next_round(chain, known, clients[0].sizes)).measurements:
        pairs = zip(clients, kept or clients, strict=True)
        total = np.sum([sums_of(chain, known, own, held) for own, held in pairs], axis=0)
        assert total.shape == (following.size,)
        known = following.fold(known, changed(total))
    return dict(known)


def all_closings() -> list[Any]:
    """Return every closing, and the last layer's in each form, as parameters of a test."""
    found = [in_form(form) for form in FORMS]
    found += [closings.create(name, {}) for name in closings.names()]
    return [pytest.param(each, id=f"{each.name} {number}") for number, each in enumerate(found)]


@pytest.mark.parametrize("closing", all_closings())
@settings(max_examples=8, deadline=None)
@given(sizes=st.lists(st.integers(1, 120), min_size=1, max_size=4), reverse=st.booleans())
def test_the_split_over_clients_makes_no_difference(closing, sizes, reverse) -> None:
    make, known, _ = data_of(closing)
    whole, held_back, shown = make(0), make(1, 60), make(2, 50).features[:, :-1]
    clients = split(whole, *sizes)[:: -1 if reverse else 1]
    kept = [held_back, *[held_back.take(slice(0))] * (len(clients) - 1)]
    found = [
        Closed(close((closing,), known, *group)).predict(shown, lambda: data_of(closing)[2])
        for group in (([whole], [held_back]), (clients, kept))
    ]
    for name in ("mean_probability", "mean", "aleatoric", "epistemic", "familiarity"):
        one, many = (getattr(each, name, None) for each in found)
        if one is not None:
            np.testing.assert_allclose(many, one, rtol=1e-6, atol=1e-6, err_msg=name)
    for name, members in getattr(found[0], "sets", {}).items():
        np.testing.assert_array_equal(found[1].sets[name], members)


def lies(seed: int, size: int) -> np.ndarray:
    """Return sums that no data have and that no bound refuses."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-30, np.log10(100 * FEATURE_BOUND**2))
    kinds = (rng.normal(size=size), -rng.random(size), np.zeros(size), rng.choice([-1, 1], size))
    return np.clip(scale * kinds[seed % 4], -100 * FEATURE_BOUND**2, 100 * FEATURE_BOUND**2)


@pytest.mark.parametrize("honest", [False, True])
@pytest.mark.parametrize("closing", all_closings())
def test_a_client_that_lies_leaves_finite_predictions(closing, honest: bool) -> None:
    make, begun, _ = data_of(closing)
    whole = make(3, 100)
    for seed in range(40):

        def changed(sums: np.ndarray, seed: int = seed) -> np.ndarray:
            lie = lies(seed, sums.size).astype(np.float32)
            return lie + sums if honest else lie

        known = close((closing,), begun, [whole], changed=changed)
        assert all(np.isfinite(v).all() for n, v in known.items() if n != PRECISION)
        found: Any = Closed(known).predict(whole.features[:, :-1], lambda: data_of(closing)[2])
        if make is numbers:
            assert np.isfinite(found.interval).all()
            continue
        assert np.isfinite(found.log_mean_probability).all()
        assert all(np.isfinite(value).all() for value in found.scores.values())


def nll(known: Known, kept: Examples) -> float:
    """Return the negative log-likelihood by logits of 64 draws of the weights themselves."""
    apart = np.zeros((len(kept.labels), CLASSES, 1))
    if VECTORS in known:
        [vectors], [values] = known[VECTORS], known[VALUES]
        jacobian = np.kron(np.eye(CLASSES), kept.features).reshape(CLASSES, -1, len(values))
        of_each = np.einsum("cnw,wv,dnv->ncd", jacobian, (vectors / values) @ vectors.T, jacobian)
        apart = np.linalg.cholesky(of_each) @ normals(CLASSES).T
    logits = (kept.features @ known[HEAD])[:, :, None] + apart
    likely = softmax(logits / known[TEMPERATURE], axis=1).mean(axis=2)
    of_labels = likely[np.arange(len(kept.labels)), kept.labels]
    return float(-np.log(np.maximum(of_labels, np.exp(LEAST_LIKELIHOOD))).mean())


@pytest.mark.parametrize("gain", [0.9, 1.1])
def test_a_temperature_below_one_has_to_be_worth_a_nat(gain: float) -> None:
    own = CANDIDATES.index(OWN)
    gains = np.full(len(CANDIDATES) + 1, -1.0)
    gains[own - 1 : own + 1] = gain, 0.0
    sums = {"examples": np.array(9.0), "log-likelihood": np.array(-5.0), "gains": gains}
    known = BayesianHead().measurements()[1].fold({}, sums)
    assert float(known[TEMPERATURE]) == (1.0 if gain < 1 else TEMPERATURES[4])


@pytest.mark.parametrize("scale", [0.1, 1.0, 8.0])
def test_held_back_examples_pick_the_best_of_all_candidates(scale: float) -> None:
    """By brute force over precisions, steps and temperatures; points are one of them."""
    whole, kept = examples(4, 60), examples(5, 80)
    known = close((BayesianHead(),), start(scale), split(whole, 20), split(kept, 50))
    own = start(scale)[HEAD]
    centred = own - own.mean(axis=1, keepdims=True)
    p = softmax(whole.features @ own, axis=1)
    [hessian] = curvature_of(p, whole.features)
    gradient = (whole.features.T @ (np.eye(CLASSES)[whole.labels] - p)).T.ravel()
    values, vectors = np.linalg.eigh(hessian)
    tried = {}
    for precision, share, temperature in CANDIDATES:
        layer = {HEAD: centred, TEMPERATURE: temperature}
        if precision < np.inf:
            step = np.linalg.solve(hessian + precision * np.eye(15), gradient)
            layer[HEAD] = centred + share * step.reshape(CLASSES, -1).T
            layer |= {VECTORS: vectors[None], VALUES: values[None] + precision}
        tried[precision, share, temperature] = nll(layer, kept)
    assert len(tried) == (15 * 2 + 1) * 11
    best = min(tried, key=lambda each: tried[each] + (each[2] < 1) * SHARPENING / 80)
    assert float(known[AFTER]) == pytest.approx(tried[best], abs=2e-5)
    assert float(known[BEFORE]) == pytest.approx(tried[np.inf, 0.0, 1.0], abs=1e-6)
    assert (known[PRECISION], known[TEMPERATURE]) == pytest.approx((best[0], best[2]))
    found = Closed(known).predict(kept.features[:, :-1]).log_mean_probability
    of_labels = -np.maximum(found[np.arange(80), kept.labels], LEAST_LIKELIHOOD).mean()
    assert of_labels == pytest.approx(float(known[AFTER]), abs=1e-4)
    if scale == 0.1:
        assert VECTORS in known  # an example in which the last layer is no point


@pytest.mark.parametrize("form", FORMS)
def test_a_closing_never_raises_the_nll_of_held_back_examples(form: str) -> None:
    """Also where draws of the whole network are the best of all: then they are left as they are."""
    for seed in range(12):
        own = np.random.default_rng(seed).uniform(-3.0, -0.01, size=40) if seed % 2 else None
        kept = examples(50 + seed, 40, own=own)
        known = close((in_form(form),), start(), [examples(seed, 30)], [kept])
        assert known[AFTER] <= known[BEFORE]
        if own is not None:
            assert float(known[BEFORE]) == pytest.approx(-own.mean(), abs=1e-6)
        kept_own = Examples(kept.features, kept.labels, CLASSES, own=np.zeros(40) - 1e-9)
        left = close((BayesianHead(),), start(), [examples(seed, 30)], [kept_own])
        assert not left[FROM_HEAD]


def test_without_held_back_examples_nothing_is_moved() -> None:
    none = examples(1).take(slice(0))
    chain = (
        closings.create(each.name, {}) for each in closings.classes() if each is not GaussianHead
    )
    known = close(tuple(chain), start(), [none], [none])
    found = Closed(known).predict(examples(2, 20).features[:, :-1])
    expected = softmax(examples(2, 20).features @ start()[HEAD], axis=1)
    np.testing.assert_allclose(found.mean_probability, expected, atol=1e-12)
    assert found.familiarity is None

    of_numbers = close((GaussianHead(),), start_of_numbers(), [numbers(1).take(slice(0))])
    found = closed_numbers(of_numbers, numbers(2, 20))
    np.testing.assert_allclose(found.mean, numbers(2, 20).features @ start_of_numbers()[HEAD][:, 0])
    assert found.interval_deviations is None


def closed_numbers(known: Known, shown: Examples) -> Any:
    """Return the predictions of a closed network for standardised targets."""
    return Closed(known).predict(shown.features[:, :-1], lambda: MixtureStatistics(Column("y")))


def test_held_back_targets_pick_the_best_gaussian_of_all_candidates() -> None:
    """By brute force from all data together, each candidate a Gaussian of the plane's weights.

    Every other target picks, and the others give the interval.
    """
    whole, kept = numbers(4, 60), numbers(5, 160)
    known = close((GaussianHead(),), start_of_numbers(), split(whole, 20), split(kept, 100))
    others, kept = (kept.take(slice(first, None, 2)) for first in (1, 0))
    mean, rho = start_of_numbers()[HEAD].T
    of_noise = [np.log1p(np.exp(each.features @ rho)) + 1e-6 for each in (whole, kept)]
    weighted = whole.features / of_noise[0][:, None]
    curvature = weighted.T @ whole.features
    gradient = weighted.T @ (whole.targets - whole.features @ mean)
    tried = {}
    for precision, share, factor in CANDIDATES:
        covariance = np.linalg.inv(curvature + min(precision, 1e30) * np.eye(len(PLANE)))
        centre = kept.features @ (mean + share * covariance @ gradient)
        spread = np.einsum("nf,fg,ng->n", kept.features, covariance, kept.features)
        likely = norm.logpdf(kept.targets, centre, factor * np.sqrt(of_noise[1] + spread))
        tried[precision, share, factor] = -np.maximum(likely, LEAST_LIKELIHOOD).mean()
    best = min(tried, key=tried.__getitem__)
    assert (known[PRECISION], known[TEMPERATURE]) == pytest.approx((best[0], best[2]))
    # 64 Gaussians stand for one where the mean is not certain.
    assert float(known[AFTER]) == pytest.approx(tried[best], abs=2e-3)
    assert float(known[BEFORE]) == pytest.approx(tried[np.inf, 0.0, 1.0], abs=1e-6)
    found = -negative_log_likelihoods(closed_numbers(known, kept), kept.targets)
    of_targets = -np.maximum(found, LEAST_LIKELIHOOD).mean()
    assert of_targets == pytest.approx(float(known[AFTER]), abs=1e-4)
    within = covered(closed_numbers(known, others), others.targets)
    assert within.sum() in (73, 74)  # ⌈81 · 0.9⌉, and one more in the same bin


@pytest.mark.parametrize("count", [18, 59])
def test_intervals_cover_as_many_targets_as_they_promise(count: int) -> None:
    """200 draws of exchangeable data, of heavy tails and another noise than is predicted.

    Also with the fewest that have an interval.
    """
    share = []
    for seed in range(200):
        trained, kept, shown = split(numbers(3000 + seed, 360), 100, count)
        known = close((GaussianHead(),), start_of_numbers(), [trained], [kept])
        share.append(covered(closed_numbers(known, shown), shown.targets).mean())
    slack = 3 * np.std(share) / np.sqrt(200)
    assert 0.9 - slack < np.mean(share) < 0.9 + 1 / (count // 2 + 1) + slack


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
    [found] = curvature_of(p, whole.features)
    np.testing.assert_allclose(found, numeric, atol=1e-7)
    for number, block in enumerate(blocks_of(p, whole.features)):
        own = slice(5 * number, 5 * number + 5)
        np.testing.assert_allclose(block, numeric[own, own], atol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_logits_have_the_mean_and_covariance_of_the_laplace_approximation(form: str) -> None:
    """Those of the inverse of all blocks, by a dense matrix of all weights."""
    kept = examples(4, 30)
    known = close((in_form(form),), start(), [examples(4, 60)], [kept])
    if VECTORS not in known:
        pytest.skip("points were better")
    pairs = zip(known[VECTORS], known[VALUES], strict=True)
    blocks = np.stack([(vectors / values) @ vectors.T for vectors, values in pairs])
    size = len(blocks) * blocks.shape[1]
    covariance = np.zeros((size, size))
    for number, block in enumerate(blocks):
        own = slice(number * block.shape[0], (number + 1) * block.shape[0])
        covariance[own, own] = block
    jacobian = np.stack([np.kron(np.eye(CLASSES), phi) for phi in kept.features])
    expected = jacobian @ covariance @ jacobian.transpose(0, 2, 1)
    root = root_of_covariance(along_blocks(known, kept.features), known[VALUES])
    np.testing.assert_allclose(root @ root.transpose(0, 2, 1), expected, atol=1e-5)
    drawn = np.array([*draw_logits(known, kept.features)]) * known[TEMPERATURE]
    np.testing.assert_allclose(drawn.mean(axis=0), kept.features @ known[HEAD], atol=1e-9)


@pytest.mark.parametrize("widths", [(), (2, 5)])
def test_density_is_that_of_the_classes_gaussians(widths: tuple[int, ...]) -> None:
    """Against SciPy, by moments of all examples together: covariances are 0 between stages."""
    rng = np.random.default_rng(3)
    labels = examples(8, 900).labels
    stages = [rng.normal(size=(900, w)) + np.eye(CLASSES, w)[labels] for w in widths]
    whole = examples(8, 900, stages=stages)
    chain = (FeatureDensity(),)
    clients = [whole.take(slice(0, 100)), whole.take(slice(100, None))]
    known = close(chain, start(), clients)
    parts = [whole.features[:, :-1], *stages]
    logs = np.log(np.bincount(labels) / 900)[:, None] + np.zeros(900)
    for phi in parts:
        width = phi.shape[1]
        own = [phi[labels == c] for c in range(CLASSES)]
        scatters = [len(o) * np.cov(o.T, bias=True) for o in own]
        common = sum(scatters) / 900
        ridge = 1e-3 * np.trace(common) / width * np.eye(width)
        logs += [
            multivariate_normal(
                o.mean(axis=0), (s + width * common) / (len(o) + width) + ridge
            ).logpdf(phi)
            for o, s in zip(own, scatters, strict=True)
        ]
    np.testing.assert_allclose(density(known, parts), -logsumexp(logs, axis=0), atol=1e-3)
    predicted = Closed(known).predict(np.concatenate(parts, axis=1))
    found = predicted.scores["feature-density"]
    np.testing.assert_allclose(found, density(known, parts), atol=1e-3)


@pytest.mark.parametrize("count", [149, 20])
def test_familiarity_is_uniform_on_exchangeable_examples(count: int) -> None:
    """Pooled over 200 draws of held-back and shown examples, by Kolmogorov and Smirnov.

    Those unlike the training data are about as many as the threshold says, by few held back too,
    and in 95 % of the draws no more than chance explains.
    """
    found, cost = [], []
    for seed in range(200):
        chain, whole = (FeatureDensity(),), examples(1000 + seed, 400)
        trained, kept, shown = split(whole, 150, count)
        known = close(chain, start(), [trained], [kept])
        mixed, plain = (
            Closed({**known, MIXES: np.array(mixes)}).predict(shown.features[:, :-1])
            for mixes in (True, False)
        )
        change = plain.log_mean_probability - mixed.log_mean_probability
        cost.append(change[np.arange(len(shown.labels)), shown.labels].mean())
        found.append(mixed.familiarity)
    first = np.array([each[0] for each in found])
    assert kstest(first, "uniform").pvalue > 0.01
    assert kstest(first**1.5, "uniform").pvalue < 0.01
    assert 0.006 < np.mean(np.concatenate(found) < 0.01) < 0.0125
    assert np.mean(cost) < 0.002
    counts = known[feature_density.FAMILIARITY]
    most, _ = feature_density.unlike_by_chance(counts, 0.01, found[0].size)
    assert 0.92 < np.mean([(each < 0.01).sum() <= most for each in found]) < 1.0


def test_what_is_unlike_the_training_data_goes_to_the_uniform() -> None:
    kept, shown = examples(7, 300), 1.6 * examples(8, 400).features[:, :-1]
    known, off = (
        close((FeatureDensity(familiarity_mixing=m),), start(3.0), [examples(6)], [kept])
        for m in (True, False)
    )
    mixed, plain = Closed(known).predict(shown), Closed(off).predict(shown)
    np.testing.assert_array_equal(mixed.familiarity, plain.familiarity)
    lower = Closed({**known, UNFAMILIAR: np.array(1e-4)}).predict(shown)
    for predicted, below in ((mixed, 0.002), (lower, 1e-4)):
        likely = np.minimum(mixed.familiarity / below, 1.0)[:, None]
        expected = likely * plain.mean_probability + (1.0 - likely) / CLASSES
        np.testing.assert_allclose(predicted.mean_probability, expected, atol=1e-12)
    far = Closed(known).predict(20.0 + 0.0 * shown)
    assert far.epistemic.min() > 0.6  # all of it: 1 − Σ 1/9
    chain = (FeatureDensity(familiarity_threshold=0.2), Conformal(conformal_alpha=0.5))
    found = Closed(close(chain, start(3.0), [examples(6)], [kept])).predict(shown)
    assert found.sets["conformal"][found.familiarity < 0.2].all()
    # Closings of before have no settings with them: theirs were the defaults.
    bare = Closed({name: array for name, array in known.items() if name not in (MIXES, UNFAMILIAR)})
    np.testing.assert_array_equal(bare.predict(shown).mean_probability, mixed.mean_probability)
    assert (bare.threshold, Closed({**known, UNFAMILIAR: np.array(0.2)}).threshold) == (0.01, 0.2)


def test_conformal_sets_cover_what_they_promise() -> None:
    """Coverage of 200 draws of calibration data: within the bounds of 1/(n + 1) on average."""
    alpha, count = 0.1, 99
    chain = (Conformal(conformal_alpha=alpha),)
    covered, by_class = [], []
    for seed in range(200):
        calibration, test = split(examples(100 + seed, count + 400), count)
        known = close(chain, start(), split(calibration, 30, 40))
        found = Closed(known).predict(test.features[:, :-1]).sets
        rows = np.arange(400)
        covered.append(found["conformal"][rows, test.labels].mean())
        by_class.append(found["conformal-by-class"][rows, test.labels].mean())
    # The deviation of the mean of 200 is about 0.002; bins of 1/1000 add as much.
    assert 1 - alpha - 0.01 < np.mean(covered) < 1 - alpha + 1 / (count + 1) + 0.015
    assert np.mean(by_class) > 1 - alpha - 0.01


def test_conformal_sets_are_those_of_crepes() -> None:
    """Of scores rounded up to edges of bins; at multiples of 1/(n + 1) theirs are larger."""
    alpha, whole, test = 0.1937, examples(14, 300), examples(15, 200).features
    known = close((Conformal(conformal_alpha=alpha),), start(), [whole])
    own, tested = (
        np.ceil(1000 * (1 - softmax(features @ known[HEAD], axis=1)))
        for features in (whole.features, test)
    )

    def crepes(own: np.ndarray, tested: np.ndarray) -> np.ndarray:
        fitted = ConformalClassifier().fit(own)
        return fitted.predict_set(tested, confidence=1 - alpha, smoothing=False) > 0

    of_true, sets = own[np.arange(300), whole.labels], Closed(known).predict(test[:, :-1]).sets
    by_class = [crepes(of_true[whole.labels == c], tested[:, [c]]) for c in range(CLASSES)]
    np.testing.assert_array_equal(sets["conformal"], crepes(of_true, tested))
    np.testing.assert_array_equal(sets["conformal-by-class"], np.hstack(by_class))


@pytest.mark.parametrize(
    ("examples", "share", "kept"), [(100, 0.1, 10), (101, 0.1, 11), (12, 0.1, 3), (3, 0.1, 1)]
)
def test_each_client_holds_back_a_few_and_no_more_than_half(examples, share, kept) -> None:
    assert held_back_count(examples, share) == kept
    assert held_back_count(examples, 0.0) == 0
