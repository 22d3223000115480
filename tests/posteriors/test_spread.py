"""The spread of σ/σ₀: quantiles of a known posterior, and when they count as learnt."""

from __future__ import annotations

import numpy as np
import pytest

from bfl.posteriors import Posterior
from bfl.posteriors.spread import isotropic, scale_spread


def posterior(deviations: np.ndarray) -> Posterior:
    return Posterior(np.zeros(deviations.size), np.square(deviations))


def test_quantiles_are_those_of_the_ratio() -> None:
    ratios = np.linspace(0.5, 2.5, 101)  # a uniform distribution: quantiles lie on the grid
    spread = scale_spread(posterior(0.02 * ratios), 0.02)
    assert spread == pytest.approx((0.6, 1.5, 2.4))
    assert spread is not None
    assert spread.learnt


@pytest.mark.parametrize(("factor", "word"), [(1.03, "began"), (0.1, "apart"), (3.0, "apart")])
def test_one_factor_for_all_is_not_learnt(factor: float, word: str) -> None:
    spread = scale_spread(posterior(np.full(50, factor * 0.05)), 0.05)
    assert spread is not None
    assert not spread.learnt
    assert word in spread.sentence()


def test_a_network_of_points_has_no_spread() -> None:
    assert scale_spread(Posterior(np.zeros(0), np.zeros(0), np.ones(3)), 1.0) is None


def test_isotropic_noise_has_the_same_size_and_the_same_means() -> None:
    learnt = Posterior(np.arange(3.0), np.array([1.0, 2.0, 6.0]), np.ones(2))
    found = isotropic(learnt)
    np.testing.assert_array_equal(found.variance, [3.0, 3.0, 3.0])
    np.testing.assert_array_equal(found.mean, learnt.mean)
    np.testing.assert_array_equal(found.point, learnt.point)
