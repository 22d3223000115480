"""The arithmetic rules with clamped partial sums, against the sum written out client by client."""

import itertools

import numpy as np
import pytest

from bfl.aggregation.pooling import pool, pooling_rules
from bfl.posteriors import Posterior

RULES = {
    "clamped-naive-weighted-averaging": ("naive-weighted-averaging", 1),
    "clamped-weighted-sum-of-normals": ("weighted-sum-of-normals", 2),
}
FLOOR = np.exp(-8.0)
EVERY = pytest.mark.parametrize("name", RULES)


def clients(log_variances) -> list[Posterior]:
    rng = np.random.default_rng(0)
    return [
        Posterior(rng.normal(size=len(row)), np.exp(np.asarray(row, float)), rng.normal(size=2))
        for row in log_variances
    ]


def one_by_one(alphas, weights, power):
    """The sum as it is written there: a logarithm after every client, clamped before the next."""
    total = None
    for alpha, weight in zip(alphas, weights, strict=True):
        term = np.exp(np.clip(alpha, -8, 8)) * weight**power
        total = np.log(term if total is None else np.exp(np.clip(total, -8, 8)) + term)
    return np.exp(total)


@EVERY
@pytest.mark.parametrize("weights", [[0.25] * 4, [0.55, 0.2, 0.2, 0.05]])
def test_it_is_the_mean_over_all_orders_of_the_sum_one_by_one(name, weights) -> None:
    rng = np.random.default_rng(1)
    alphas = np.concatenate([rng.uniform(-12, 2, (4, 30)), np.full((4, 3), -9.0)], axis=1)
    power = RULES[name][1]
    orders = list(itertools.permutations(range(4)))
    expected = np.mean(
        [one_by_one(alphas[list(o)], np.array(weights)[list(o)], power) for o in orders], axis=0
    )
    got = pool(pooling_rules.create(name), clients(alphas), weights).posterior
    np.testing.assert_allclose(got.variance, expected, rtol=1e-10)


@EVERY
def test_means_and_points_and_large_variances_are_those_of_the_rule_without(name) -> None:
    rng = np.random.default_rng(2)
    given = clients(rng.uniform(-2, 2, (3, 20)))
    weights = [0.5, 0.3, 0.2]
    got = pool(pooling_rules.create(name), given, weights).posterior
    plain = pool(pooling_rules.create(RULES[name][0]), given, weights).posterior
    for vector in ("mean", "variance", "point"):
        np.testing.assert_allclose(getattr(got, vector), getattr(plain, vector), rtol=1e-12)


def test_the_weighted_sum_does_not_vanish_round_after_round() -> None:
    rule = pooling_rules.create("clamped-weighted-sum-of-normals")
    posterior = clients([[-9.0, -1.0]])[0]
    for _ in range(30):
        posterior = pool(rule, [posterior] * 10, [0.1] * 10).posterior
    np.testing.assert_allclose(posterior.variance, FLOOR * 100 / 91, rtol=1e-9)


def test_averaging_grows_until_a_share_is_the_clamp() -> None:
    rule = pooling_rules.create("clamped-naive-weighted-averaging")
    posterior, before = clients([[-9.0]])[0], 0.0
    for _ in range(200):
        posterior = pool(rule, [posterior] * 10, [0.1] * 10).posterior
        assert posterior.variance[0] >= before
        before = posterior.variance[0]
    np.testing.assert_allclose(before, 10 * FLOOR, rtol=1e-6)
