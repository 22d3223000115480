"""Numbers of fidelity beside closed forms; methods that are exact, and one that is wrong."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from benchmarks.fidelity import __main__ as command
from benchmarks.fidelity import comparison, methods, network, problems
from benchmarks.fidelity.problems import PRIOR_PRECISION, SCALES, SIZES, Gaussian, joined
from scripts.pages import section_written

N = np.array(SIZES, float)
OMEGA = N / N.sum()
CLIENT_PRECISION = PRIOR_PRECISION + N[:, None] * SCALES
EXACT_PRECISION = PRIOR_PRECISION + N.sum() * SCALES


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.fixture
def simulated(generator: np.random.Generator) -> problems.Simulated:
    return problems.linear(2000, generator, correlated=False)


@pytest.fixture
def normal(generator: np.random.Generator) -> np.ndarray:
    return generator.standard_normal((2000, comparison.RANKED_DRAWS))


def found(name: str, simulated: problems.Simulated) -> Gaussian:
    return methods.methods()[name](simulated.clients, np.random.default_rng(2))


def test_the_reference_is_bayes_rule(simulated: problems.Simulated) -> None:
    """By conditioning the joint Gaussian of weights and targets, which inverts no Gram matrix."""
    data = joined(simulated.clients)
    x = data.features
    gain = x.T @ np.linalg.inv(x @ x.T + np.eye(len(x)))
    exact = data.exact()
    np.testing.assert_allclose(exact.mean, data.targets @ gain.T, atol=1e-10)
    np.testing.assert_allclose(exact.covariance[0], np.eye(4) - gain @ x, atol=1e-10)


@pytest.mark.parametrize(
    ("rule", "precision"),
    [
        ("conflation", CLIENT_PRECISION.sum(axis=0)),
        ("log-linear-pool", OMEGA @ CLIENT_PRECISION),
        ("weighted-conflation", OMEGA @ CLIENT_PRECISION / OMEGA.max()),
        ("naive-weighted-averaging", 1 / (OMEGA @ (1 / CLIENT_PRECISION))),
        ("weighted-sum-of-normals", 1 / (OMEGA**2 @ (1 / CLIENT_PRECISION))),
        ("distributed-weight-consolidation", EXACT_PRECISION),
        (methods.PLANTED, PRIOR_PRECISION + 2 * N.sum() * SCALES),
    ],
)
def test_ratios_are_their_closed_forms(
    rule: str, precision: np.ndarray, simulated: problems.Simulated
) -> None:
    ratio = comparison.variance_ratio(found(rule, simulated), joined(simulated.clients).exact())
    assert ratio == pytest.approx(np.mean(EXACT_PRECISION / precision), rel=1e-9)


def test_partitioned_inference_is_exact_and_the_planted_rule_is_caught(
    simulated: problems.Simulated, normal: np.ndarray
) -> None:
    exact = joined(simulated.clients).exact()
    partitioned = found(methods.PARTITIONED, simulated)
    assert comparison.variance_ratio(partitioned, exact) == pytest.approx(1, abs=0.05)
    np.testing.assert_allclose(partitioned.mean, exact.mean, atol=1e-4)
    for name in (methods.CENTRAL, methods.PARTITIONED, methods.CONSOLIDATION):
        each = found(name, simulated)
        assert comparison.uniformity(each, simulated.weights, normal) > 0.01
        assert comparison.divergence(each, exact) < 1e-6
    planted = found(methods.PLANTED, simulated)
    assert comparison.uniformity(planted, simulated.weights, normal) < 1e-3


def test_ivon_is_nearly_exact(generator: np.random.Generator) -> None:
    simulated = problems.linear(300, generator, correlated=False)
    ivon, exact = found(methods.NEWTON, simulated), joined(simulated.clients).exact()
    assert comparison.variance_ratio(ivon, exact) == pytest.approx(1, abs=0.05)
    assert comparison.divergence(ivon, exact) < 0.02
    normal = generator.standard_normal((300, comparison.RANKED_DRAWS))
    assert comparison.uniformity(ivon, simulated.weights, normal) > 0.01


def test_prior_and_data_are_counted(simulated: problems.Simulated) -> None:
    exact = joined(simulated.clients).exact()
    for rule, prior, data in (
        ("conflation", len(N), 1),
        ("log-linear-pool", 1, OMEGA @ OMEGA),
        (methods.PLANTED, 1, 2),
    ):
        numbers = comparison.counted(found(rule, simulated), exact)
        assert list(numbers.values()) == pytest.approx([prior, data])
    assert comparison.counted(found("client-gaussian", simulated), exact) == {}


def test_divergence_is_its_integral(generator: np.random.Generator) -> None:
    mean, root = generator.normal(size=(2, 1, 3)), generator.normal(size=(2, 3, 3))
    covariance = root @ root.transpose(0, 2, 1) + np.eye(3)
    q, p = (Gaussian(m, c[None]) for m, c in zip(mean, covariance, strict=True))
    draws = generator.multivariate_normal(q.mean[0], q.covariance[0], 200_000)
    logs = [stats.multivariate_normal(g.mean[0], g.covariance[0]).logpdf(draws) for g in (q, p)]
    assert comparison.divergence(q, p) == pytest.approx(np.mean(logs[0] - logs[1]), rel=0.02)


def test_gradient_and_curvature_of_classifiers(generator: np.random.Generator) -> None:
    """By differences of the log-likelihood, and of the logits."""
    for data in (
        network.network(3, generator).clients[2],
        problems.logistic(3, generator).clients[2],
    ):
        assert isinstance(data, problems.Classifier)
        weights, tiny = generator.standard_normal(data.shape), 1e-5
        labels = data.targets.astype(int)[..., None]

        def log_likelihood(at: np.ndarray) -> np.ndarray:
            log_p = special.log_softmax(data.logits(at, data.features), axis=-1)  # noqa: B023
            return np.take_along_axis(log_p, labels, axis=-1).sum(axis=(1, 2))  # noqa: B023

        steps = tiny * np.eye(data.shape[1])
        slopes = [
            (log_likelihood(weights + d) - log_likelihood(weights - d)) / (2 * tiny) for d in steps
        ]
        gradient, curvature = data.derivatives(weights)
        np.testing.assert_allclose(gradient, np.array(slopes).T, atol=1e-6)
        logits = [data.logits(weights + d, data.features) for d in steps]
        jacobian = (np.array(logits) - data.logits(weights, data.features)) / tiny
        p = data.residuals(weights)[1]
        spread = p[..., None] * (np.eye(p.shape[-1]) - p[..., None, :])
        expected = np.einsum("isnc,sncd,jsnd->sij", jacobian, spread, jacobian)
        np.testing.assert_allclose(curvature, expected, atol=1e-3)


def test_the_closings_whole_head_is_laplaces_approximation(generator: np.random.Generator) -> None:
    clients = problems.logistic(3, generator).clients
    whole, by_classes = methods.closing_heads(clients).values()
    exact = joined(clients).exact()
    np.testing.assert_allclose(whole.covariance, exact.covariance, atol=1e-8)
    # Blocks leave out how the weights of classes move together.
    assert comparison.divergence(by_classes, exact) > 1.0


@pytest.mark.of_bfls_own
def test_the_page_has_the_committed_table() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "results" / "fidelity.md"
    text = page.read_text(encoding="utf-8")
    table = pd.read_csv(page.with_suffix("") / command.TABLE)
    lines = command.page_lines(page.with_suffix(""))
    assert section_written(text, command.SECTION, lines) == text, (
        "python -m benchmarks.fidelity docs/results/fidelity"
    )
    heads = {"closing's head, whole", "closing's head, by classes"}
    assert set(table["method"]) == methods.methods().keys() | heads
    exact = table.set_index("method").loc[[methods.PARTITIONED, methods.CONSOLIDATION]]
    assert (exact["orthogonal: variance ratio"] - 1).abs().max() < 0.05
    assert (exact["orthogonal: p of ranks"] > 0.01).all()
