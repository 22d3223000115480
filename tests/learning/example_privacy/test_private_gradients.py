"""How batches are drawn, gradients bounded and sums noised, without a network."""

from typing import Any

import numpy as np
import pytest

from bfl.federation.privacy import Normals, SystemNormals
from bfl.learning.example_privacy import (
    DifferentiallyPrivateSgd,
    PrivateGradients,
    example_privacies,
)

SOURCES = [np.random.default_rng(3), SystemNormals()]


@pytest.mark.parametrize("name", example_privacies.names())
def test_no_gradient_is_longer_than_the_bound(name: str, tensorflow: Any) -> None:
    part = example_privacies.create(name, {"example-clip-norm": 0.7})
    if not isinstance(part, PrivateGradients):
        assert not part.active
        assert not part.private
        assert part.mechanism() is None
        return
    norms = np.concatenate([[0.0], np.geomspace(1e-30, 1e30, 400), [0.7]])
    factors = np.array([part.scale(tensorflow.constant(norm)).numpy() for norm in norms])
    assert (factors >= 0.0).all()
    assert (factors * norms <= 0.7).all()
    assert factors[-1] * norms[-1] > 0.3
    # What no bound could be given to has no part in the sum.
    for norm in (np.inf, np.nan):
        assert part.scale(tensorflow.constant(norm, tensorflow.float64)).numpy() == 0.0


@pytest.mark.parametrize("name", example_privacies.names())
def test_noise_has_an_account_and_nothing_is_measured_with_it(name: str) -> None:
    part = example_privacies.create(name)
    mechanism = part.mechanism()
    assert part.private == part.active == (mechanism is not None) == (name != "none")
    if mechanism:
        assert mechanism.releases(3) == 30
        assert 0.0 < mechanism.epsilon(30) < mechanism.epsilon(60)
        without = example_privacies.create(name, {"example-noise-multiplier": 0.0})
        assert without.active
        assert not without.private
        assert without.mechanism() is None


def test_clipping_is_flat_clipping(tensorflow: Any) -> None:
    part = DifferentiallyPrivateSgd(example_clip_norm=2.0)
    norms = (0.0, 1.0, 1.999, 4.0, 200.0)
    found = [part.scale(tensorflow.constant(n, tensorflow.float64)).numpy() for n in norms]
    assert found == pytest.approx([1.0, 1.0, 1.0, 0.5, 0.01], rel=1e-9)


@pytest.mark.parametrize("draws", SOURCES)
def test_batches_are_poisson_samples(draws: Normals) -> None:
    """Each example by itself: batches of all sizes, whose variance is N q (1 − q)."""
    part = DifferentiallyPrivateSgd(example_sampling_rate=0.2)
    batches = [part.batch(50, draws) for _ in range(4000)]
    taken = np.zeros((4000, 50))
    for row, batch in zip(taken, batches, strict=True):
        assert batch.dtype == np.int32
        row[batch] = 1.0
    np.testing.assert_allclose(taken.mean(axis=0), 0.2, atol=5 * (0.16 / 4000) ** 0.5)
    sizes = taken.sum(axis=1)
    assert sizes.var() == pytest.approx(50 * 0.16, rel=0.15)
    assert np.abs(np.corrcoef(taken.T) - np.eye(50)).max() < 0.09
    every = DifferentiallyPrivateSgd(example_sampling_rate=1.0)
    np.testing.assert_array_equal(every.batch(7, draws), np.arange(7))


@pytest.mark.parametrize("draws", SOURCES)
def test_noise_is_the_multiplier_times_the_bound(draws: Normals) -> None:
    part = DifferentiallyPrivateSgd(example_clip_norm=0.5, example_noise_multiplier=3.0)
    noise = part.noise(200_000, draws)
    assert noise.dtype == np.float64
    assert noise.std() == pytest.approx(1.5, rel=0.01)
    assert abs(noise.mean()) < 5 * 1.5 / 200_000**0.5
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.012
    assert not DifferentiallyPrivateSgd(example_noise_multiplier=0.0).noise(9, draws).any()


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, 0.25), (-10.0, -0.25), (np.nan, 0.0), (-np.inf, -0.25)]
)
def test_no_factor_leads_beyond_the_bound(factor: float, expected: float, tensorflow: Any) -> None:
    class Wrong(DifferentiallyPrivateSgd):
        """Its factor is what no factor should be."""

        def factor(self, norm: Any) -> Any:
            return tensorflow.zeros_like(norm) + factor

    scale = Wrong().scale(tensorflow.constant(4.0, tensorflow.float64)).numpy()
    assert scale == pytest.approx(expected)
