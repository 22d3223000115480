"""Samplers against the moments that the paper gives them, and what every one keeps to."""

from typing import Any

import numpy as np
import pytest

from bfl.aggregation.samplers import ClientModels, Sampler, join_values, samplers
from bfl.posteriors import Manifest, Parameter, Posterior

D, P = 3, 4
SIZES = (10, 30, 60)
MANIFEST = Manifest(
    (
        Parameter("kernel", (D,), gaussian=True, initialization="zeros"),
        Parameter("offset", (2,), gaussian=False, initialization="zeros"),
        Parameter("moving", (2,), gaussian=False, initialization="ones", minimum=0.0),
    )
)


def posterior(seed: int, spread: float = 0.3) -> Posterior:
    generator = np.random.default_rng(seed)
    return Posterior(
        generator.normal(size=D).astype(np.float32),
        np.full(D, spread**2, np.float32),
        generator.uniform(0.5, 2.0, P).astype(np.float32),
    )


def client_models(count: int = len(SIZES)) -> ClientModels:
    posteriors = [posterior(k) for k in range(count)]
    return ClientModels(
        posteriors, range(count), SIZES[:count], posterior(8), posterior(9), MANIFEST
    )


def drawn(sampler: Sampler, models: ClientModels, count: int) -> Any:
    draw, generator = sampler.fit(models), np.random.default_rng(7)
    return np.stack([draw(generator) for _ in range(count)])


def moments_of_equation_5(models: ClientModels, weights: Any) -> tuple[Any, Any]:
    """Return mean and variances, each summed up in words of its own."""
    mean, variance = 0.0, 0.0
    for weight, client in zip(weights, models.posteriors, strict=True):
        mean = mean + weight * join_values(client).astype(np.float64)
    for weight, client in zip(weights, models.posteriors, strict=True):
        variance = variance + weight * (join_values(client) - mean) ** 2
    return mean, variance


@pytest.mark.parametrize("sampler", samplers.classes(), ids=lambda cls: cls.name)
def test_a_draw_depends_on_its_generator_alone(sampler: type[Sampler]) -> None:
    models = client_models()
    draw = sampler().fit(models)
    first, second = (draw(np.random.default_rng(seed)) for seed in (1, 2))
    assert first.shape == (D + P,)
    assert np.isfinite(first).all()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(draw(np.random.default_rng(1)), first)
    np.testing.assert_array_equal(sampler().fit(models)(np.random.default_rng(1)), first)


@pytest.mark.parametrize("weights", ["size", "equal"])
def test_the_gaussian_has_the_moments_of_equation_5(weights: Any) -> None:
    models = client_models()
    shares = np.array(SIZES) / sum(SIZES) if weights == "size" else np.full(3, 1 / 3)
    mean, variance = moments_of_equation_5(models, shares)
    sampler = samplers.create("gaussian", {"sample-weights": weights, "sample-scale": 0.5})
    found_mean, found_variance = sampler.moments(models)  # type: ignore[attr-defined]
    np.testing.assert_allclose(found_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found_variance, variance, rtol=1e-12)
    samples = drawn(sampler, models, 20_000)
    error = 0.5 * np.sqrt(variance / 20_000)
    assert np.abs(samples.mean(axis=0) - mean).max() < (5 * error).max()
    covariance = np.cov(samples.T)
    np.testing.assert_allclose(np.diag(covariance), 0.25 * variance, rtol=0.06)
    # Diagonal, which the clients' own covariance is not.
    deviation = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(deviation, deviation)
    assert np.abs(correlation - np.eye(D + P)).max() < 0.05


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_the_dirichlet_has_its_known_mean_and_covariance(alpha: float) -> None:
    """With equal weights: of γ, 1/K and (δ_ij / K − 1/K²) / (K α + 1)."""
    models = client_models()
    sampler = samplers.create("dirichlet", {"sample-alpha": alpha, "sample-weights": "equal"})
    samples = drawn(sampler, models, 20_000)
    clients = np.stack([join_values(p) for p in models.posteriors]).astype(np.float64)
    gamma = (np.eye(3) / 3 - 1 / 9) / (3 * alpha + 1)
    expected = clients.T @ gamma @ clients
    np.testing.assert_allclose(samples.mean(axis=0), clients.mean(axis=0), atol=0.02)
    assert np.abs(np.cov(samples.T) - expected).max() < 0.05 * np.abs(expected).max()


def test_the_dirichlet_multiplies_by_sizes() -> None:
    """Equation 7, from the same γ."""
    models = client_models()
    by_size, equal = (
        samplers.create("dirichlet", {"sample-weights": weights}) for weights in ("size", "equal")
    )
    for seed in range(5):
        gamma = equal.shares(models, np.random.default_rng(seed))  # type: ignore[attr-defined]
        found = by_size.shares(models, np.random.default_rng(seed))  # type: ignore[attr-defined]
        products = gamma * np.array(SIZES)
        np.testing.assert_allclose(found, products / products.sum(), rtol=1e-12)
        np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-12)


def test_normalized_differences_are_those_of_the_published_code() -> None:
    """Its loop over tensors and clients, written out."""
    models = client_models()
    samples = drawn(samplers.create("normalized-differences"), models, 20_000)
    previous = join_values(models.previous).astype(np.float64)
    for part in (slice(0, 3), slice(3, 5), slice(5, 7)):
        units, lengths = [], []
        for client in models.posteriors:
            difference = join_values(client)[part] - previous[part]
            lengths.append(np.sqrt((difference**2).sum()))
            units.append(difference / lengths[-1])
        mean = sum(units) / 3
        variance = np.maximum(sum(unit**2 for unit in units) / 3 - mean**2, 1e-5)
        length = sum(lengths) / 3
        np.testing.assert_allclose(
            samples[:, part].mean(axis=0), previous[part] + length * mean, atol=5e-3
        )
        np.testing.assert_allclose(
            samples[:, part].std(axis=0), 0.1 * length * np.sqrt(variance), rtol=0.05
        )


def test_the_pooled_posterior_is_sampled_with_its_own_spread() -> None:
    models = client_models()
    samples = drawn(samplers.create("pooled-posterior", {"sample-scale": 2.0}), models, 20_000)
    np.testing.assert_allclose(samples[:, :D].mean(axis=0), models.average.mean, atol=0.03)
    np.testing.assert_allclose(samples[:, :D].std(axis=0), 0.6, rtol=0.05)
    np.testing.assert_array_equal(samples[0, D:], models.average.point)


def test_arrays_hold_all_of_the_models() -> None:
    models = client_models()
    again = ClientModels.from_arrays(models.to_arrays(), MANIFEST)
    assert [p.digest() for p in again.posteriors] == [p.digest() for p in models.posteriors]
    assert again.average.digest() == models.average.digest()
    assert again.previous.digest() == models.previous.digest()
    assert list(again.num_examples) == list(models.num_examples)
    assert list(again.partition_ids) == list(models.partition_ids)
