"""Kullback-Leibler divergences of diagonal Gaussians."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from bfl.posteriors import divergence as d

Array = npt.NDArray[np.float64]


def kullback_leibler(*vectors: npt.NDArray[Any]) -> float:
    return d.divergence(*vectors).value


def pairwise_kullback_leibler(means: list[Array], variances: list[Array]) -> Array:
    return d.pairwise_divergences(means, variances)[0]


def brute_force(qm: Array, qv: Array, pm: Array, pv: Array) -> float:
    return float(0.5 * np.sum(qv / pv - 1 + np.log(pv / qv) + (qm - pm) ** 2 / pv))


def gaussians(seed: int, count: int, size: int) -> tuple[list[Array], list[Array]]:
    rng = np.random.default_rng(seed)
    offset = rng.normal(0, 100)
    means = [offset + rng.normal(size=size) for _ in range(count)]
    return means, [np.exp(rng.uniform(-3, 3, size)) for _ in range(count)]


@given(st.integers(0, 10_000), st.integers(1, 60))
@settings(max_examples=50)
def test_agrees_with_the_formula(seed: int, size: int) -> None:
    (qm, pm), (qv, pv) = gaussians(seed, 2, size)
    assert kullback_leibler(qm, qv, pm, pv) == pytest.approx(brute_force(qm, qv, pm, pv))


@pytest.mark.parametrize(("mean", "scale"), [(0.3, 0.5), (-2.0, 1.7), (0.0, 1.0)])
def test_agrees_with_numerical_integration(mean: float, scale: float) -> None:
    q, p = stats.norm(mean, scale), stats.norm(0.4, 1.2)
    expected, _ = integrate.quad(
        lambda x: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), mean - 12 * scale, mean + 12 * scale
    )
    got = kullback_leibler(*(np.array([x]) for x in (mean, scale**2, 0.4, 1.44)))
    assert got == pytest.approx(expected, rel=1e-8)


def test_tiny_differences_do_not_cancel() -> None:
    one = np.ones(1)
    got = kullback_leibler(one, 1 + np.full(1, 1e-6), one, one)
    assert got == pytest.approx(1e-12 / 4, rel=1e-4)


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 60))
@settings(max_examples=50)
def test_all_pairs_agree_with_each_pair(seed: int, count: int, size: int) -> None:
    means, variances = gaussians(seed, count, size)
    expected = [
        [brute_force(means[k], variances[k], means[j], variances[j]) for j in range(count)]
        for k in range(count)
    ]
    got = pairwise_kullback_leibler(means, variances)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_blocks_add_up_and_float32_is_summed_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    means, variances = gaussians(3, 3, 1000)
    whole = pairwise_kullback_leibler(means, variances)
    pair = kullback_leibler(means[0], variances[0], means[1], variances[1])
    monkeypatch.setattr(d, "BLOCK", 64)
    np.testing.assert_allclose(pairwise_kullback_leibler(means, variances), whole, rtol=1e-12)
    assert kullback_leibler(means[0], variances[0], means[1], variances[1]) == pytest.approx(
        pair, rel=1e-12
    )
    small = [x.astype(np.float32) for x in (means[0], variances[0], means[1], variances[1])]
    assert kullback_leibler(*small) == pytest.approx(
        brute_force(*(x.astype(np.float64) for x in small)), rel=1e-12
    )


def test_identical_gaussians_are_within_the_resolution_and_never_negative() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=50_000), 10.0 ** rng.uniform(-16, 6, 50_000)
    assert kullback_leibler(mean, variance, mean, variance) == 0
    values, resolutions = d.pairwise_divergences([mean, mean, mean + 1], [variance] * 3)
    assert np.all(values >= 0)
    assert np.all(np.diag(values) == 0)
    assert values[0, 1] <= resolutions[0, 1]
    assert values[0, 2] > resolutions[0, 2]


@pytest.mark.parametrize("far", [1e6, 1e9, 1e14, 1e20, 1e30])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_vector_far_away_leaves_the_divergence_of_two_others_as_it_is(
    far: float, place: int
) -> None:
    rng = np.random.default_rng(0)
    means = [rng.normal(0, 1e-2, 10_000) for _ in range(2)]
    variances = [np.full(10_000, 1e-4) for _ in range(3)]
    hostile = means[0].copy()
    hostile[5] = far
    means.insert(place, hostile)
    values, resolutions = d.pairwise_divergences(means, variances)
    honest = [k for k in range(3) if k != place]
    for k, j in (honest, honest[::-1]):
        expected = d.divergence(means[k], variances[k], means[j], variances[j])
        assert values[k, j] == pytest.approx(expected.value, rel=1e-3)
        assert resolutions[k, j] < 1e-3 * values[k, j]
    for k in honest:
        assert values[k, place] == pytest.approx(far**2 / 2e-4, rel=0.1)


@pytest.mark.parametrize(("small", "large"), [(1e-16, 1e6), (1e-16, 1e-15), (1e5, 1e6)])
def test_extreme_variances_are_finite(small: float, large: float) -> None:
    zeros = np.zeros(3)
    for q, p in ((small, large), (large, small)):
        qv, pv = np.full(3, q), np.full(3, p)
        got = kullback_leibler(zeros, qv, zeros, pv)
        assert got == pytest.approx(brute_force(zeros, qv, zeros, pv), rel=1e-12)
        assert np.all(np.isfinite(pairwise_kullback_leibler([zeros, zeros + 1], [qv, pv])))


def test_sizes_must_agree() -> None:
    a, b = np.ones(3), np.ones(4)
    with pytest.raises(ValueError, match="one size"):
        kullback_leibler(a, a, b, b)
    with pytest.raises(ValueError, match="2 means and 1 variances"):
        pairwise_kullback_leibler([a, a], [a])
