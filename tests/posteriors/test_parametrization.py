"""σ = ε + softplus(ρ) and its inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfl.posteriors import parametrization as p

EPSILON = float(np.finfo(np.float32).eps)


@given(st.floats(-20, 14))
def test_scale_comes_back(exponent: float) -> None:
    sigma = max(float(np.exp(exponent)), 2 * EPSILON)
    rho = p.untransformed_from_scale(sigma)
    assert np.isfinite(rho)
    assert p.scale_from_untransformed(rho) == pytest.approx(sigma, rel=1e-12)


@given(st.floats(-20, 1e6))
def test_untransformed_scale_comes_back(rho: float) -> None:
    back = float(p.untransformed_from_scale(p.scale_from_untransformed(rho)))
    assert back == pytest.approx(rho, rel=1e-9, abs=1e-6)


@given(st.floats(-12, 6), st.floats(-12, 6))
def test_variance_comes_back(first: float, second: float) -> None:
    variance = np.maximum(10.0 ** np.array([[first], [second]]), 4 * EPSILON**2)
    back = p.variance_from_untransformed(p.untransformed_from_variance(variance))
    assert back.shape == (2, 1)
    np.testing.assert_allclose(back, variance, rtol=1e-11)


def test_both_ways_are_monotone() -> None:
    sigma = np.geomspace(1.01 * EPSILON, 1e6, 20_000)
    assert np.all(np.diff(p.untransformed_from_scale(sigma)) > 0)
    assert np.all(np.diff(p.scale_from_untransformed(np.linspace(-18, 1e4, 20_000))) > 0)


def test_every_scale_from_1e_minus_8_to_1e6_is_finite_in_float32() -> None:
    sigma = np.geomspace(1e-8, 1e6, 10_000)
    rho = p.untransformed_from_scale(sigma).astype(np.float32)
    assert np.all(np.isfinite(rho))
    assert np.all(p.scale_from_untransformed(rho) > 0)
    above = sigma > 1.1 * EPSILON
    np.testing.assert_allclose(p.scale_from_untransformed(rho)[above], sigma[above], rtol=1e-5)


@pytest.mark.parametrize("sigma", [EPSILON, 1e-8, 0.0])
def test_a_scale_that_has_no_inverse_is_clipped_just_above_epsilon(sigma: float) -> None:
    clipped = p.scale_from_untransformed(p.untransformed_from_scale(sigma))
    assert np.float32(clipped) == np.nextafter(np.float32(EPSILON), np.float32(1))
    assert p.untransformed_from_variance(sigma**2) == p.untransformed_from_scale(sigma)


def test_extreme_untransformed_scales_do_not_overflow() -> None:
    scale = p.scale_from_untransformed(np.array([-1e30, -800.0, 0.0, 800.0, 1e30], np.float32))
    np.testing.assert_allclose(scale[:4], [EPSILON, EPSILON, EPSILON + np.log(2), 800], rtol=1e-7)
    assert np.all(np.isfinite(scale))
    assert scale.dtype == np.float64
