"""Whether a pool by precisions is more than FedAvg's average."""

import numpy as np
import pytest

from bfl.aggregation.pooling import pool, pooling_rules
from bfl.evaluation.precision_spread import DISTANCE, SPREAD, PrecisionSpread
from bfl.posteriors import Posterior

RNG = np.random.default_rng(0)
SIZES = (100, 37, 263)
PREVIOUS = Posterior(RNG.normal(size=500).astype(np.float32), np.ones(500, np.float32))


def clients(variance):
    """Return three clients near the previous posterior; ``variance(k)`` gives their variances."""
    return [
        Posterior(
            (PREVIOUS.mean + 0.1 * RNG.normal(size=500)).astype(np.float32),
            np.broadcast_to(np.float32(variance(k)), 500).astype(np.float32),
        )
        for k in range(3)
    ]


def pooled(rule, posteriors):
    weights = np.array(SIZES) / sum(SIZES)
    return pool(pooling_rules.create(rule), posteriors, weights, previous=PREVIOUS).posterior


def measured(posteriors, result):
    spread = PrecisionSpread()
    for posterior, weight in zip(posteriors, SIZES, strict=True):
        spread.add(posterior, weight)
    return spread.metrics(PREVIOUS, result)


def test_with_unit_variances_the_log_linear_pool_is_fedavg_bit_for_bit():
    """Yang et al. (2023), the remark after Eq. 3.12."""
    posteriors = clients(lambda k: 1.0)
    result = pooled("log-linear-pool", posteriors)
    np.testing.assert_array_equal(result.mean, pooled("nwa", posteriors).mean)
    assert measured(posteriors, result)[SPREAD] == 0
    assert measured(posteriors, result)[DISTANCE] < 1e-6


def test_variances_that_differ_move_the_pool_off_the_average():
    factors = np.array([1.0, np.e, np.e**2])
    posteriors = clients(lambda k: 1 / factors[k])
    result = pooled("log-linear-pool", posteriors)
    found = measured(posteriors, result)
    weights = np.array(SIZES) / sum(SIZES)
    # log-precisions 0, 1, 2 with the weights of the pool.
    expected = np.sqrt(weights @ np.arange(3) ** 2 - (weights @ np.arange(3)) ** 2)
    assert found[SPREAD] == pytest.approx(expected, rel=1e-5)
    means = np.stack([p.mean for p in posteriors]).astype(np.float64)
    average = weights @ means
    ratio = np.linalg.norm(result.mean - average) / np.linalg.norm(average - PREVIOUS.mean)
    assert found[DISTANCE] == pytest.approx(ratio, rel=1e-5)
    assert found[DISTANCE] > 0.1


def test_points_alone_have_neither():
    spread = PrecisionSpread()
    points = Posterior(np.zeros(0, np.float32), np.zeros(0, np.float32), np.ones(3, np.float32))
    spread.add(points, 1.0)
    assert spread.metrics(points, points) == {}
