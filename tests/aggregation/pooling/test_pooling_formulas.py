"""Each pooling rule against its definition: numerical integration, a closed form, another rule."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bfl.aggregation.pooling import Pooled, pool, pooling_rules
from bfl.posteriors import Posterior

Array = npt.NDArray[np.float64]
SEEDS = st.integers(0, 100_000)
WEIGHTS = np.array([0.5, 0.3, 0.2])
FLAT = 1e30


def clients(seed: int, count: int = 3, size: int = 6) -> list[Posterior]:
    rng = np.random.default_rng(seed)
    return [
        Posterior(rng.normal(size=size), rng.uniform(0.3, 2.0, size) ** 2) for _ in range(count)
    ]


def run(
    name: str,
    posteriors: Sequence[Posterior],
    weights: Sequence[float] | Array | None = None,
    previous: Posterior | None = None,
    **fields: object,
) -> Pooled:
    rule = pooling_rules.get(name)(**fields)
    given_weights = np.ones(len(posteriors)) if weights is None else weights
    return pool(rule, posteriors, given_weights, previous=previous)


def assert_close(got: Posterior, expected: Posterior, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(got.mean, expected.mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(got.variance, expected.variance, rtol=rtol)


def stacked(posteriors: Sequence[Posterior]) -> tuple[Array, Array]:
    return np.stack([q.mean for q in posteriors]), np.stack([q.variance for q in posteriors])


def integrated(posteriors: Sequence[Posterior], combine: Callable[[Array], Array]) -> Posterior:
    """Return the moments of a combination of densities, by integration on a grid.

    ``combine`` maps log-densities (K, D, grid) to an unnormalised log-density (D, grid).
    """
    grid = np.linspace(-30, 30, 60_001)
    mean, variance = stacked(posteriors)
    log_density = combine(stats.norm.logpdf(grid, mean[..., None], np.sqrt(variance)[..., None]))
    density = np.exp(log_density - log_density.max(axis=-1, keepdims=True))
    density /= density.sum(axis=-1, keepdims=True)
    centre = density @ grid
    return Posterior(centre, np.sum(density * (grid - centre[:, None]) ** 2, axis=-1))


DENSITIES: dict[str, Callable[[Array], Array]] = {
    "conflation": lambda log: log.sum(axis=0),
    "log-linear-pool": lambda log: np.tensordot(WEIGHTS, log, axes=1),
    "weighted-conflation": lambda log: np.tensordot(WEIGHTS / WEIGHTS.max(), log, axes=1),
    "linear-pool": lambda log: np.log(np.tensordot(WEIGHTS, np.exp(log), axes=1) + 1e-300),
}
"""Rules as what they make of the clients' densities: products, of powers, and the mixture."""


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", DENSITIES)
def test_a_pool_has_the_moments_of_the_combined_densities(name: str, seed: int) -> None:
    everyone = clients(seed)
    expected = integrated(everyone, DENSITIES[name])
    for previous in (None, clients(9, 1)[0]):
        assert_close(run(name, everyone, WEIGHTS, previous).posterior, expected, 1e-9)


@given(SEEDS)
@settings(max_examples=20)
def test_linear_pool_obeys_the_law_of_total_variance(seed: int) -> None:
    everyone = clients(seed)
    mean, variance = stacked(everyone)
    disagreement = WEIGHTS @ (mean - WEIGHTS @ mean) ** 2
    pooled = run("linear-pool", everyone, WEIGHTS).posterior
    naive = run("naive-weighted-averaging", everyone, WEIGHTS).posterior
    np.testing.assert_allclose(pooled.variance, WEIGHTS @ variance + disagreement, rtol=1e-12)
    assert_close(pooled, Posterior(naive.mean, naive.variance + disagreement))
    fitted = run("client-gaussian", everyone, WEIGHTS).posterior
    assert_close(fitted, Posterior(naive.mean, disagreement))


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e4])
def test_linear_pool_keeps_a_tiny_variance_beside_a_large_mean(offset: float) -> None:
    mean = np.random.default_rng(0).normal(size=2000)
    everyone = [Posterior(mean, np.full(2000, 1e-16))] * 7
    previous = Posterior(mean - offset, np.ones(2000))
    weights = np.random.default_rng(1).uniform(size=7)
    pooled = run("linear-pool", everyone, weights, previous).posterior
    naive = run("naive-weighted-averaging", everyone, weights, previous).posterior
    assert np.all(pooled.variance >= naive.variance)
    np.testing.assert_allclose(pooled.variance, 1e-16, rtol=1e-12)


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("distance", [0.0, 1.0, 100.0])
def test_a_small_disagreement_is_off_by_rounding_around_the_reference(
    gap: float, distance: float
) -> None:
    centre = np.random.default_rng(0).uniform(-1, 1, 500)
    everyone = [Posterior(centre + side * gap, np.full(500, 1e-30)) for side in (-1, 1)]
    previous = Posterior(centre + distance, np.ones(500))
    mean, _ = stacked(everyone)
    exact = ((mean[1] - mean[0]) / 2) ** 2 + 1e-30  # var() would round the average of the two
    error = run("linear-pool", everyone, None, previous).posterior.variance - exact
    assert np.all(np.abs(error) <= 32 * np.finfo(float).eps * ((distance + gap) ** 2 + gap**2))


@given(SEEDS)
@settings(max_examples=20)
def test_log_variance_averaging_is_the_geometric_mean_of_the_variances(seed: int) -> None:
    everyone = clients(seed)
    mean, variance = stacked(everyone)
    got = run("log-variance-averaging", everyone, WEIGHTS).posterior
    geometric = np.prod(variance ** WEIGHTS[:, None], axis=0)
    assert_close(got, Posterior(WEIGHTS @ mean, geometric))
    naive = run("naive-weighted-averaging", everyone, WEIGHTS).posterior
    assert np.all(got.variance <= naive.variance * (1 + 1e-12))


@given(SEEDS)
@settings(max_examples=20)
def test_the_barycentre_has_the_least_sum_of_squared_distances(seed: int) -> None:
    """Of two Gaussians with diagonal covariances, W₂² = ‖μ − μ'‖² + ‖σ − σ'‖²."""
    everyone = clients(seed)
    mean, deviation = stacked(everyone)[0], np.sqrt(stacked(everyone)[1])
    got = run("wasserstein-barycentre", everyone, WEIGHTS).posterior
    assert_close(got, Posterior(WEIGHTS @ mean, (WEIGHTS @ deviation) ** 2))

    def distance(centre: np.ndarray, width: np.ndarray) -> float:
        each = np.square(mean - centre).sum(axis=1) + np.square(deviation - width).sum(axis=1)
        return float(WEIGHTS @ each)

    width = np.sqrt(got.variance)
    least = distance(got.mean, width)
    for step in (0.9, 1.1):
        assert distance(got.mean, step * width) > least
        assert distance(step * got.mean, width) > least


def test_weighted_sum_of_normals_is_the_distribution_of_the_weighted_sum() -> None:
    everyone = clients(0)
    mean, variance = stacked(everyone)
    got = run("weighted-sum-of-normals", everyone, 10 * WEIGHTS).posterior
    assert_close(got, Posterior(WEIGHTS @ mean, WEIGHTS**2 @ variance))
    rng = np.random.default_rng(0)
    draws = rng.normal(mean[:, 0], np.sqrt(variance[:, 0]), (20_000, 3)) @ WEIGHTS
    fitted = stats.norm(got.mean[0], np.sqrt(got.variance[0]))
    assert stats.kstest(draws, fitted.cdf).pvalue > 1e-3


@given(SEEDS)
@settings(max_examples=20)
def test_weighted_conflation_has_its_known_properties(seed: int) -> None:
    everyone = clients(seed)
    mean, variance = stacked(everyone)
    weighted = run("weighted-conflation", everyone, WEIGHTS).posterior
    log_linear = run("log-linear-pool", everyone, WEIGHTS).posterior
    precision = WEIGHTS @ (1 / variance)
    assert_close(
        weighted, Posterior(WEIGHTS @ (mean / variance) / precision, WEIGHTS.max() / precision)
    )
    assert_close(log_linear, Posterior(weighted.mean, weighted.variance / WEIGHTS.max()))
    assert np.all(weighted.variance <= everyone[0].variance * (1 + 1e-12))  # the heaviest client's
    assert_close(
        run("weighted-conflation", everyone).posterior, run("conflation", everyone).posterior
    )


@given(SEEDS)
@settings(max_examples=20)
def test_consolidation_with_a_flat_or_no_previous_is_conflation(seed: int) -> None:
    everyone = clients(seed)
    expected = run("conflation", everyone).posterior
    flat = Posterior(np.zeros(6), np.full(6, FLAT))
    for previous in (None, flat):
        got = run("dwc", everyone, WEIGHTS, previous)
        assert_close(got.posterior, expected)
        assert got.diagnostics["negative-precision-fraction"] == 0.0


@given(SEEDS)
@settings(max_examples=20)
def test_consolidation_is_the_formula(seed: int) -> None:
    everyone = clients(seed)
    previous = Posterior(np.random.default_rng(seed).normal(size=6), np.full(6, 5.0))
    mean, variance = stacked(everyone)
    precision = np.sum(1 / variance, axis=0) - 2 / previous.variance
    product = np.sum(mean / variance, axis=0) - 2 * previous.mean / previous.variance
    got = run("dwc", everyone, None, previous).posterior
    assert_close(got, Posterior(product / precision, 1 / precision), 1e-10)
    # A client of weight 0 is not counted in K either.
    more = run("dwc", [*everyone, clients(seed + 1, 1)[0]], [1, 1, 1, 0], previous).posterior
    assert_close(more, got)


def test_consolidation_falls_back_where_the_precision_is_not_positive() -> None:
    # Precisions 1 + 1 against 1/σ_o²: positive, exactly 0, 0 but for rounding, negative.
    ones = np.ones(4)
    previous = Posterior(np.full(4, 0.5), 1 / np.array([1.0, 2.0, 2.0 * (1 - 1e-16), 4.0]))
    everyone = [Posterior(ones, ones), Posterior(3 * ones, ones)]
    got = run("dwc", everyone, None, previous)
    assert got.diagnostics["negative-precision-fraction"] == 0.75
    conflated = run("conflation", everyone).posterior
    np.testing.assert_allclose(got.posterior.variance[1:], conflated.variance[1:])
    np.testing.assert_allclose(got.posterior.mean[1:], conflated.mean[1:])
    assert got.posterior.variance[0] == pytest.approx(1.0)
    assert got.posterior.mean[0] == pytest.approx(4 - 0.5)


def test_client_gaussian_has_a_floor() -> None:
    one = clients(0)[0]
    agreeing = run("client-gaussian", [one] * 3).posterior
    np.testing.assert_allclose(agreeing.variance, 1e-12)
    raised = run("client-gaussian", [one] * 3, dispersion_floor=0.25).posterior
    np.testing.assert_allclose(raised.variance, 0.25)
    fitted = run("client-gaussian", clients(1), dispersion_floor=1e-3).posterior
    mean, _ = stacked(clients(1))
    np.testing.assert_allclose(fitted.variance, mean.var(axis=0), rtol=1e-12)
