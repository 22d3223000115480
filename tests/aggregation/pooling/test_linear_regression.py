"""End to end and exact: Bayesian linear regressions on disjoint data, pooled, are that on all."""

import numpy as np
import numpy.typing as npt
import pytest

from bfl.aggregation.pooling import pool, pooling_rules
from bfl.posteriors import Posterior

Array = npt.NDArray[np.float64]

SIZE, ROWS, NOISE = 6, 25, 0.3


def fit(design: Array, target: Array, prior: Posterior) -> tuple[Array, Array]:
    """Return the exact posterior mean (D,) and covariance (D, D) of a linear regression."""
    precision = design.T @ design / NOISE**2 + np.diag(1 / prior.variance)
    covariance = np.linalg.inv(precision)
    return covariance @ (design.T @ target / NOISE**2 + prior.mean / prior.variance), covariance


def shard(rng: np.random.Generator, coefficients: Array) -> tuple[Array, Array]:
    """Return a client's data; its design has orthogonal columns, so its posterior is diagonal."""
    orthogonal, _ = np.linalg.qr(rng.normal(size=(ROWS, SIZE)))
    design = orthogonal * rng.uniform(0.5, 4.0, SIZE)
    return design, design @ coefficients + NOISE * rng.normal(size=ROWS)


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_consolidation_of_disjoint_data_is_the_posterior_of_all_the_data(count: int) -> None:
    rng = np.random.default_rng(count)
    prior = Posterior(rng.normal(size=SIZE), rng.uniform(0.2, 3.0, SIZE))
    coefficients = rng.normal(size=SIZE)
    shards = [shard(rng, coefficients) for _ in range(count)]
    local = []
    for design, target in shards:
        mean, covariance = fit(design, target, prior)
        np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-12)
        local.append(Posterior(mean, np.diag(covariance).copy()))
    mean, covariance = fit(
        np.concatenate([design for design, _ in shards]),
        np.concatenate([target for _, target in shards]),
        prior,
    )
    rule = pooling_rules.create("distributed-weight-consolidation")
    pooled = pool(rule, local, np.ones(count), previous=prior)
    np.testing.assert_allclose(pooled.posterior.mean, mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(pooled.posterior.variance, np.diag(covariance), rtol=1e-8)
    assert set(pooled.diagnostics.values()) == {0.0}
