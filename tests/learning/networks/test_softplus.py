"""σ = ε + softplus(ρ) and its inverse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfl.learning.networks.parametrizations import SOFTPLUS

EPSILON = float(np.finfo(np.float32).eps)


@given(st.floats(-20, 1e6))
def test_untransformed_scale_comes_back(rho: float) -> None:
    back = float(SOFTPLUS.untransformed(SOFTPLUS.variance(rho)))
    assert back == pytest.approx(rho, rel=1e-9, abs=1e-6)


@given(st.floats(-12, 12), st.floats(-12, 12))
def test_variance_comes_back(first: float, second: float) -> None:
    variance = np.maximum(10.0 ** np.array([[first], [second]]), 4 * EPSILON**2)
    back = SOFTPLUS.variance(SOFTPLUS.untransformed(variance))
    assert back.shape == (2, 1)
    np.testing.assert_allclose(back, variance, rtol=1e-11)


def test_every_scale_from_1e_minus_8_to_1e6_is_finite_in_float32() -> None:
    sigma = np.geomspace(1e-8, 1e6, 10_000)
    rho = SOFTPLUS.untransformed(np.square(sigma)).astype(np.float32)
    assert np.all(np.isfinite(rho))
    scale = np.sqrt(SOFTPLUS.variance(rho))
    assert np.all(scale > 0)
    above = sigma > 1.1 * EPSILON
    np.testing.assert_allclose(scale[above], sigma[above], rtol=1e-5)


@pytest.mark.parametrize("sigma", [EPSILON, 1e-8, 0.0])
def test_a_scale_that_has_no_inverse_is_clipped_just_above_epsilon(sigma: float) -> None:
    clipped = np.sqrt(SOFTPLUS.variance(SOFTPLUS.untransformed(sigma**2)))
    assert np.float32(clipped) == np.nextafter(np.float32(EPSILON), np.float32(1))
