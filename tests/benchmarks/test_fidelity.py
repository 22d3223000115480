"""Numbers of fidelity beside closed forms; methods that are exact, and one that is wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats
from scipy.special import expit

from benchmarks.fidelity import __main__ as command
from benchmarks.fidelity import comparison, methods, network, problems
from benchmarks.fidelity.problems import PRIOR_PRECISION, SCALES, SIZES, Gaussian, joined
from bfl.experiments.results.table import section_written

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


def test_the_linear_pools_ratio_is_its_expectation(simulated: problems.Simulated) -> None:
    """A client's mean has variance 1 − 1/Λ_k under the prior, two have (1 − 1/Λ_k)(1 − 1/Λ_j)."""
    spread = 1 - 1 / CLIENT_PRECISION
    of_mean = (OMEGA @ spread) ** 2 + OMEGA**2 @ (spread - spread**2)
    variance = OMEGA @ (1 / CLIENT_PRECISION) + OMEGA @ spread - of_mean
    exact = joined(simulated.clients).exact()
    ratio = comparison.variance_ratio(found("linear-pool", simulated), exact)
    assert ratio == pytest.approx(np.mean(variance * EXACT_PRECISION), rel=0.03)


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


def test_ranks_of_exact_posteriors_have_uniform_p_values() -> None:
    found_p = []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        simulated = problems.linear(500, generator, correlated=True)
        normal = generator.standard_normal((500, comparison.RANKED_DRAWS))
        exact = joined(simulated.clients).exact()
        found_p.append(comparison.uniformity(exact, simulated.weights, normal))
    assert stats.kstest(found_p, "uniform").pvalue > 0.01


def test_correlated_features_leave_partitioned_inference_the_mean_field(
    generator: np.random.Generator,
) -> None:
    simulated = problems.linear(3, generator, correlated=True)
    precision = np.linalg.inv(joined(simulated.clients).exact().covariance)
    partitioned = found(methods.PARTITIONED, simulated)
    diagonal = np.diagonal(precision, axis1=1, axis2=2)
    np.testing.assert_allclose(partitioned.variance, 1 / diagonal, rtol=1e-4)
    np.testing.assert_allclose(partitioned.mean, joined(simulated.clients).exact().mean, atol=1e-2)


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


@pytest.mark.slow
def test_the_sampler_has_the_moments_of_a_grid(
    generator: np.random.Generator, tensorflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two classes with one input, of which the posterior of the weights is a function on R²."""
    monkeypatch.setattr(problems, "CLASSES", 2)
    x = generator.normal(size=(30, 1))
    y = (generator.random((2, 30)) < expit(1.5 * x[:, 0])).astype(float)
    axis = np.linspace(-6, 6, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    logits = (grid[:, 1] - grid[:, 0])[:, None] * x[:, 0]
    prior = (grid**2).sum(axis=1) / 2
    chains = problems.sampled(problems.Logistic(x, y), 1000, 0)
    r_hat, size = problems.convergence(chains)
    assert r_hat.max() < problems.MOST_R_HAT
    assert size.min() > problems.LEAST_SIZE
    found = Gaussian.fitted(chains.reshape(-1, 2, 2))
    for number, labels in enumerate(y):
        log = (labels * logits - np.logaddexp(0, logits)).sum(axis=1) - prior
        weight = np.exp(log - log.max())
        mean = weight @ grid / weight.sum()
        variance = weight @ (grid - mean) ** 2 / weight.sum()
        np.testing.assert_allclose(found.mean[number], mean, atol=0.03)
        np.testing.assert_allclose(found.variance[number], variance, rtol=0.1)


def test_chains_that_disagree_have_not_converged(
    generator: np.random.Generator, tensorflow: Any
) -> None:
    """One data set of independent draws, one whose chains have different means, and one whose
    draws follow one another."""
    values = generator.standard_normal((400, problems.CHAINS, 3, 2))
    values[:, :, 1] += np.arange(problems.CHAINS)[:, None]
    values[:, :, 2] = values[:, :, 2].cumsum(axis=0)
    r_hat, size = problems.convergence(values)
    assert r_hat[0] < problems.MOST_R_HAT < r_hat[1:].min()
    assert size[0] > 2 * problems.LEAST_SIZE > 20 * size[1:].max()


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


@pytest.mark.slow
def test_the_networks_reference_is_that_of_weighted_draws_of_the_prior(
    generator: np.random.Generator, tensorflow: Any
) -> None:
    few = network.network(2, generator).clients[0]
    features = network.network_features(50, generator)
    prior = generator.standard_normal((100_000, *few.shape))
    assert isinstance(few, network.Network)
    logits = few.logits(prior, few.features)[..., 1]
    weight = np.exp((few.targets * logits - np.logaddexp(0, logits)).sum(axis=2))
    expected = (weight[:, :, None] * expit(few.logits(prior, features)[..., 1])).sum(axis=0)
    draws = problems.sampled(few, 500, 0).reshape(-1, *few.shape)
    found_there = comparison.predicted(few, draws, features)[..., 1]
    np.testing.assert_allclose(found_there, expected / weight.sum(axis=0)[:, None], atol=0.04)
    draws = Gaussian(prior[0], np.cov(prior[:, 0].T)[None] * np.ones((2, 1, 1))).draws(
        20_000, generator
    )
    np.testing.assert_allclose(draws.mean(axis=0), prior[0], atol=0.04)
    np.testing.assert_allclose(np.cov(draws[:, 1].T), np.eye(few.shape[1]), atol=0.05)


@pytest.mark.slow
def test_ivon_predicts_as_the_networks_posterior_does(
    generator: np.random.Generator, tensorflow: Any
) -> None:
    """Nearer than consolidation in one round, and than the linear pool by far."""
    clients = network.network(4, generator).clients
    whole, features = joined(clients), network.network_features(200, generator)
    assert isinstance(whole, network.Network)
    chains = problems.sampled(whole, 250, 0)
    exact = comparison.predicted(whole, chains.reshape(-1, *whole.shape), features)
    away = {}
    for name in (methods.NEWTON, methods.PLANTED, methods.CONSOLIDATION, "linear-pool"):
        draws = methods.methods()[name](clients, generator).draws(1000, generator)
        away[name] = np.abs(comparison.predicted(whole, draws, features) - exact).mean()
    assert away[methods.NEWTON] < 0.03
    assert away[methods.NEWTON] < 0.7 * min(away[methods.PLANTED], away[methods.CONSOLIDATION])
    assert away["linear-pool"] > 0.08


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


@pytest.mark.long
def test_the_command_writes_what_it_has_found(tmp_path: Path) -> None:
    page = tmp_path / "out.md"
    page.write_text(
        "before\n<!-- fidelity -->\n<!-- end of fidelity -->\nafter\n", encoding="utf-8"
    )
    command.main([str(tmp_path / "out"), "--quick"])
    written = pd.read_csv(tmp_path / "out" / command.TABLE)
    assert set(written["method"]) > methods.methods().keys()
    assert (tmp_path / "out" / command.FIGURE).read_bytes().startswith(b"\x89PNG")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.count("| linear-pool | ") == 1
