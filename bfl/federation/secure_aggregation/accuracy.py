"""Bound of a masked pool's rounding, known before anybody trains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from bfl.aggregation.pooling import PoolingRule
from bfl.aggregation.pooling.base import Statistics, client_statistics, pool_statistics
from bfl.errors import ConfigurationError, PosteriorError
from bfl.federation.exchanges import FEWEST_CLIENTS
from bfl.federation.secure_aggregation.masking import choose_exponents, corners
from bfl.posteriors import Posterior

MEAN_ERROR = 0.01
"""Greatest error of a pooled mean, in its pooled standard deviations."""

VARIANCE_ERROR = 1e-3
"""Greatest error of a pooled variance, as a share of it."""


def check_accuracy(
    rule: PoolingRule, previous: Posterior, weights: Sequence[float], fewest: int
) -> None:
    """Raise ConfigurationError if rounding could carry the pool of clients at a corner too far.

    Also where the heaviest clients drop out: the grid is that of all clients' weights.

    Args:
        fewest: How many clients have to stay.
    """
    ordered, count = sorted(weight for weight in weights if weight > 0), len(weights)
    fewer = max(FEWEST_CLIENTS - 1, fewest)
    while count:
        left = weights if count == len(weights) else ordered[:count]
        mean, variance = greatest_errors(rule, previous, weights, left)
        if mean > MEAN_ERROR or variance > VARIANCE_ERROR:
            gone = len(weights) - count
            where = f" where the {gone} of most weight drop out" if gone else ""
            raise ConfigurationError(
                f"masked sums of {len(weights)} clients could be off by {mean:.2g} pooled standard "
                f"deviations in a mean and {variance:.2g} of a variance with {rule.name}{where}, "
                f"and {MEAN_ERROR:g} and {VARIANCE_ERROR:g} are allowed; allowed: weights that "
                "differ less (weighting='equal'), fewer clients a round, or exchange='direct'"
            )
        count, fewer = (fewer, 2 * fewer) if fewer < len(ordered) else (0, fewer)


def greatest_errors(
    rule: PoolingRule, previous: Posterior, weights: Sequence[float], left: Sequence[float]
) -> tuple[float, float]:
    """Return the greatest errors of a pooled mean and variance, of clients at one corner.

    The mean's in pooled standard deviations, the variance's as a share of it. The statistics of a
    rule are all off by as much as rounding can, in all combinations of signs.

    Args:
        weights: Those of all clients, which choose the grid.
        left: Those of the clients that stay.
    """
    around, edges = corners(previous)
    exponents = choose_exponents(rule, previous, weights)
    errors = np.array([rounding_error(exponent, len(left)) for exponent in exponents[:-1]])
    mean = variance = 0.0
    for corner in edges:
        # Of equal weights one stands for all: this is asked before every round.
        sums: npt.NDArray[np.float64] = np.asarray(
            sum(
                count * client_statistics(rule, corner, weight, around).gaussian
                for weight, count in Counter(left).items()
            )
        )
        exact = _pool(rule, sums, left, around)
        if exact is None:  # it would not be pooled in a direct exchange either
            continue
        for signs in product((-1.0, 1.0), repeat=len(errors)):
            found = _pool(rule, sums + (np.array(signs) * errors)[:, np.newaxis], left, around)
            if found is None:
                return math.inf, math.inf
            shift = np.abs(found.mean - exact.mean) / np.sqrt(exact.variance)
            mean = max(mean, float(shift.max()))
            variance = max(variance, float(np.abs(found.variance / exact.variance - 1).max()))
    return mean, variance


def rounding_error(exponent: int, clients: int) -> float:
    """Return the greatest error of a sum over clients by rounding each number."""
    return math.ldexp(clients, -exponent - 1)


def _pool(
    rule: PoolingRule, sums: npt.NDArray[np.float64], weights: Sequence[float], around: Posterior
) -> Posterior | None:
    statistics = Statistics(sums.copy(), np.zeros(0))
    try:
        return pool_statistics(rule, statistics, weights, around).posterior
    except PosteriorError:
        return None
