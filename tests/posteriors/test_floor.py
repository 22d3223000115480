"""The floor of pooled standard deviations: what it changes, and that training can leave it."""

import numpy as np
import pytest

from bfl.posteriors import Posterior
from bfl.posteriors.posterior import FRACTION_AT_FLOOR, with_scale_floor

DEVIATIONS = np.array([1e-12, 9e-6, 1e-5, 1.1e-5, 0.1], np.float32)


def posterior_of(deviations):
    variance = np.square(np.asarray(deviations, np.float64)).astype(np.float32)
    return Posterior(np.arange(len(variance), dtype=np.float32), variance, np.ones(3, np.float32))


def test_smaller_standard_deviations_are_raised_and_the_others_keep_their_bits():
    given = posterior_of(DEVIATIONS)
    before = given.digest()
    floored, diagnostics = with_scale_floor(given, 1e-5)
    deviations = np.sqrt(floored.variance)
    np.testing.assert_allclose(deviations, np.maximum(DEVIATIONS, 1e-5), rtol=1e-6)
    np.testing.assert_array_equal(floored.variance[3:], given.variance[3:])
    assert floored.variance.dtype == np.float32
    assert floored.mean is given.mean
    assert floored.point is given.point
    assert diagnostics == {FRACTION_AT_FLOOR: 3 / 5}
    assert given.digest() == before
    again, same = with_scale_floor(floored, 1e-5)
    assert (again.digest(), same) == (floored.digest(), diagnostics)


@pytest.mark.parametrize("floor", [0.0, 1e-13])
def test_a_floor_below_all_changes_no_bit(floor):
    given = posterior_of(DEVIATIONS)
    expected = {FRACTION_AT_FLOOR: 0.0} if floor else {}
    assert with_scale_floor(given, floor) == (given, expected)


def test_points_have_no_floor():
    points = Posterior(np.zeros(0, np.float32), np.zeros(0, np.float32), np.ones(4, np.float32))
    assert with_scale_floor(points, 1e-5) == (points, {})


@pytest.mark.parametrize("floor", [-1e-9, np.inf, np.nan])
def test_a_floor_that_is_none_is_refused(floor):
    with pytest.raises(ValueError, match="expected at least 0"):
        with_scale_floor(posterior_of(DEVIATIONS), floor)
