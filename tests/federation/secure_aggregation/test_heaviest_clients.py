"""What is promised of rounding holds where the clients of most weight drop out."""

import numpy as np
import pytest

from bfl.aggregation.pooling import (
    client_statistics,
    pool_weighted,
    pooled_statistics,
    pooling_rules,
)
from bfl.errors import ConfigurationError
from bfl.federation.exchanges.masked import Masked
from bfl.federation.secure_aggregation.accuracy import (
    agreed_exponents,
    check_accuracy,
    greatest_errors,
)
from bfl.federation.secure_aggregation.masking import decoded_statistics, encoded_statistics
from bfl.posteriors import Posterior

ALLOWED = Masked().secure_sums.value_range
PREVIOUS = Posterior(np.array([-1.0, 1.0]), np.array([1e-4, 0.5]), np.zeros(0))


def imbalanced(ratio: float) -> list[float]:
    """Return the weights of 7 clients, and of 3 that hold so many times as many examples."""
    sizes = np.array([1.0] * 7 + [ratio] * 3)
    return [float(weight) for weight in sizes / sizes.sum()]


@pytest.mark.parametrize("name", ["weighted-sum-of-normals", "log-linear-pool", "linear-pool"])
def test_what_is_foreseen_of_the_lightest_bounds_what_they_get(name):
    rule, weights = pooling_rules.create(name), imbalanced(1e3)
    left = weights[:7]
    exponents = agreed_exponents(rule, ALLOWED, PREVIOUS, weights)
    foreseen = greatest_errors(rule, ALLOWED, PREVIOUS, weights, left)
    generator = np.random.default_rng(4)
    for deviation in (ALLOWED.least_deviation, ALLOWED.greatest_deviation):
        triples = [
            (
                Posterior(
                    PREVIOUS.mean + generator.uniform(-1, 1, 2) * ALLOWED.reach,
                    np.full(2, deviation**2),
                ),
                weight,
                None,
            )
            for weight in left
        ]
        wanted = pool_weighted(rule, triples, previous=PREVIOUS).posterior
        total = np.zeros(rule.statistics * 2, np.uint64)
        for posterior, weight, _ in triples:
            total += encoded_statistics(
                client_statistics(rule, posterior, weight, PREVIOUS), exponents
            )
        sums = decoded_statistics(total, exponents, 2, 0)
        found = pooled_statistics(rule, sums, left, PREVIOUS).posterior
        distance = np.abs(found.mean - wanted.mean) / np.sqrt(wanted.variance)
        assert distance.max() <= foreseen[0] + 1e-6
        assert np.abs(found.variance / wanted.variance - 1).max() <= foreseen[1] + 1e-9


@pytest.mark.parametrize(
    ("name", "ratio"),
    [("weighted-sum-of-normals", 1e3), ("log-linear-pool", 1e5), ("weighted-conflation", 1e5)],
)
def test_weights_with_which_the_lightest_alone_would_be_off_are_refused(name, ratio):
    rule, weights = pooling_rules.create(name), imbalanced(ratio)
    with pytest.raises(ConfigurationError, match=r"where the \d of most weight drop out; allowed"):
        check_accuracy(rule, ALLOWED, PREVIOUS, weights)
    check_accuracy(rule, ALLOWED, PREVIOUS, weights, fewest=10)  # nobody may drop out
    check_accuracy(rule, ALLOWED, PREVIOUS, weights, fewest=8)  # a heavy one always stays
    check_accuracy(rule, ALLOWED, PREVIOUS, imbalanced(10.0), fewest=2)
