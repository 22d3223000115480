"""Natural parameters against the densities themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfl.errors import PosteriorError
from bfl.posteriors.posterior import NaturalParameters, greatest_step

FINITE = st.floats(-10, 10)
POSITIVE = st.floats(1e-3, 1e3)


def log_density(mean: float, variance: float, at: np.ndarray) -> np.ndarray:
    return -0.5 * (at - mean) ** 2 / variance


@given(FINITE, POSITIVE)
def test_moments_come_back(mean: float, variance: float) -> None:
    natural = NaturalParameters.of(np.array([mean]), np.array([variance]))
    back_mean, back_variance = natural.moments()
    np.testing.assert_allclose(back_mean, mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(back_variance, variance, rtol=1e-12)


@given(FINITE, POSITIVE, FINITE, POSITIVE, st.floats(0.1, 3))
def test_sums_are_products_of_densities_and_multiples_are_powers(
    mean: float, variance: float, other_mean: float, other_variance: float, power: float
) -> None:
    first = NaturalParameters.of(np.array([mean]), np.array([variance]))
    second = NaturalParameters.of(np.array([other_mean]), np.array([other_variance]))
    pooled_mean, pooled_variance = (first + second * power).moments()
    at = np.linspace(-5, 5, 11)
    product = log_density(mean, variance, at) + power * log_density(other_mean, other_variance, at)
    pooled = log_density(pooled_mean[0], pooled_variance[0], at)
    difference = product - pooled  # the same constant everywhere
    np.testing.assert_allclose(difference, difference[0], rtol=1e-6, atol=1e-6)


def test_what_says_nothing_changes_nothing_and_has_no_moments() -> None:
    gaussian = NaturalParameters.of(np.array([1.0, 2.0]), np.array([0.5, 0.25]))
    same = gaussian + NaturalParameters.nothing(2)
    np.testing.assert_array_equal(same.precision, gaussian.precision)
    with pytest.raises(PosteriorError, match="2 of 2 precisions are not positive"):
        NaturalParameters.nothing(2).moments()


@given(
    st.lists(st.tuples(POSITIVE, st.floats(-1e4, 1e4)), min_size=1, max_size=8), st.floats(0, 0.9)
)
def test_the_greatest_step_keeps_the_share_and_no_greater_one_does(
    pairs: list[tuple[float, float]], share: float
) -> None:
    precision, change = (np.array(column) for column in zip(*pairs, strict=True))
    step = greatest_step(precision, change, share)
    assert 0 <= step <= 1
    assert np.all(precision + step * change >= share * precision * (1 - 1e-9) - 1e-9)
    if step < 1:
        further = min(1.0, step * 1.01 + 1e-6)
        assert np.any(precision + further * change < share * precision * (1 + 1e-9))
