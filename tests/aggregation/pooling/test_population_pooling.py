"""Population pooling against the literal sampler that it replaces."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from bfl.aggregation.pooling import pool, pooling_rules
from bfl.aggregation.pooling.base import BLOCK
from bfl.posteriors import Posterior

Array = npt.NDArray[np.float64]

MEANS, SCALES = np.array([0.0, 1.0, -0.5]), np.array([1.0, 0.2, 2.0])
REPLICATIONS = 4000


def sampled(counts: list[int], seed: int) -> tuple[Array, Array]:
    """Return the pooled mean and variance of literal samples, as equation (7), many times."""
    rng = np.random.default_rng(seed)
    population = np.concatenate(
        [
            rng.normal(mean, scale, (REPLICATIONS, count))
            for mean, scale, count in zip(MEANS, SCALES, counts, strict=True)
        ],
        axis=1,
    )
    return population.mean(axis=1), population.var(axis=1)


def pooled(population_size: int, weights: list[float], seed: int) -> tuple[Array, Array]:
    """Return the rule's pooled mean and variance, many times: one parameter per replication."""
    posteriors = [
        Posterior(np.full(REPLICATIONS, mean), np.full(REPLICATIONS, scale**2))
        for mean, scale in zip(MEANS, SCALES, strict=True)
    ]
    rule = pooling_rules.create("ppa", {"population-size": population_size})
    drawers = [np.random.default_rng([seed, k]) for k in range(len(posteriors))]
    result = pool(rule, posteriors, weights, generators=drawers).posterior
    return result.mean, result.variance


@pytest.mark.parametrize(
    ("population_size", "weights", "counts"),
    [
        (20, [0.5, 0.3, 0.2], [10, 6, 4]),
        (3, [1, 1, 1], [1, 1, 1]),
        (1000, [0.1, 0.6, 0.3], [100, 600, 300]),
        (10, [0.899, 0.1, 0.001], [9, 1, 1]),
    ],
)
def test_the_distribution_is_the_literal_samplers(
    population_size: int, weights: list[float], counts: list[int]
) -> None:
    got = pooled(population_size, weights, seed=1)
    expected = sampled(counts, seed=2)
    # The ratio is there for the dependence of the two.
    for statistic in (lambda m, v: m, lambda m, v: v, lambda m, v: (m - MEANS.mean()) / np.sqrt(v)):
        assert stats.ks_2samp(statistic(*got), statistic(*expected)).pvalue > 1e-3


def test_sample_counts_round_halves_up_and_are_at_least_one() -> None:
    rule = pooling_rules.create("ppa", {"population-size": 1000})
    assert [rule.mass(w) for w in (1e-9, 0.0014, 0.0625, 1 / 16 - 1e-16, 0.333, 1.0)] == [
        1,
        1,
        63,
        63,
        333,
        1000,
    ]


def test_draws_are_the_clients_own_and_repeat() -> None:
    size = 2 * BLOCK + 7_000
    rng = np.random.default_rng(0)
    posteriors = [Posterior(rng.normal(size=size), np.ones(size)) for _ in range(3)]
    rule = pooling_rules.create("ppa")

    def digest(order: list[int]) -> str:
        drawers = [np.random.default_rng(k) for k in order]
        clients = [posteriors[k] for k in order]
        pooled = pool(rule, clients, [1] * 3, generators=drawers).posterior
        # The last bits of float64 are not what is looked at.
        vectors = (pooled.mean, pooled.variance, pooled.point)
        return Posterior(*(vector.astype(np.float32) for vector in vectors)).digest()

    assert digest([0, 1, 2]) == digest([0, 1, 2])
    assert digest([0, 1, 2]) != digest([0, 1, 1])


def test_blocks_get_draws_of_their_own() -> None:
    one = Posterior(np.zeros(2 * BLOCK), np.ones(2 * BLOCK))
    rule = pooling_rules.create("ppa")
    result = pool(rule, [one], [1.0], generators=[np.random.default_rng(5)]).posterior
    for vector in (result.mean, result.variance):
        assert abs(np.corrcoef(vector[:BLOCK], vector[BLOCK:])[0, 1]) < 0.05
