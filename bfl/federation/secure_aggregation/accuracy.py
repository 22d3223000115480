"""Bound of the rounding of a pooled posterior, known before anybody trains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from bfl.aggregation.pooling import (
    PoolingRule,
    Statistics,
    client_statistics,
    pooled_statistics,
)
from bfl.errors import ConfigurationError, PosteriorError
from bfl.federation.secure_aggregation.fixed_point import rounding
from bfl.federation.secure_aggregation.neighbours import FEWEST_CLIENTS
from bfl.federation.secure_aggregation.value_range import ValueRange, agreed_exponents
from bfl.posteriors import Posterior

MEAN_ERROR = 0.01
"""Greatest error of a pooled mean, in its pooled standard deviations."""

VARIANCE_ERROR = 1e-3
"""Greatest error of a pooled variance, as a share of it."""


def check_accuracy(
    rule: PoolingRule,
    allowed: ValueRange,
    previous: Posterior,
    weights: Sequence[float],
    fewest: int | None = None,
) -> None:
    """Raise if rounding could carry the pool of clients at a corner of the range too far.

    Also where the heaviest clients drop out: the grid is that of all clients' weights.

    Args:
        rule: The pooling rule.
        allowed: The range of the clients' posteriors.
        previous: The previous global posterior.
        weights: The weights of all clients that are asked.
        fewest: How many of them have to stay; half of them, if it is not said.

    Raises:
        ConfigurationError: It could; saying how far, and which keys make the range smaller.
    """
    for left in _lightest(weights, math.ceil(len(weights) / 2) if fewest is None else fewest):
        mean, variance = greatest_errors(rule, allowed, previous, weights, left)
        if mean > MEAN_ERROR or variance > VARIANCE_ERROR:
            gone = len(weights) - len(left)
            where, how = f" where the {gone} of most weight drop out", "weighting='equal' or "
            raise ConfigurationError(
                f"sums modulo 2^64 of {len(weights)} clients, whose posteriors may be anywhere in "
                "the range that is agreed on, could be off by "
                f"{mean:.2g} pooled standard deviations in a mean and {variance:.2g} of a variance "
                f"with {rule.name}{where if gone else ''}; allowed: {MEAN_ERROR:g} and "
                f"{VARIANCE_ERROR:g}, by {how if gone else ''}a narrower range: masked-reach (now "
                f"{allowed.reach:g}), masked-least-deviation ({allowed.least_deviation:g}), "
                f"masked-greatest-deviation ({allowed.greatest_deviation:g})"
            )


def greatest_errors(
    rule: PoolingRule,
    allowed: ValueRange,
    previous: Posterior,
    weights: Sequence[float],
    left: Sequence[float] | None = None,
) -> tuple[float, float]:
    """Return the greatest errors of a pooled mean and variance, of clients at one corner.

    The mean's in pooled standard deviations, the variance's as a share of it. The statistics of a
    rule are all off by as much as rounding can, in all combinations of signs.

    Args:
        rule: The pooling rule.
        allowed: The range of the clients' posteriors.
        previous: The previous global posterior.
        weights: The weights of all clients that are asked.
        left: The weights of the clients that stay; all by default.
    """
    around, corners = allowed.corners(previous)
    exponents = agreed_exponents(rule, allowed, previous, weights)
    left = weights if left is None else left
    mean = variance = 0.0
    for corner in corners if previous.size else ():
        # Of equal weights one stands for all: this is asked before every round.
        sums = sum(
            count * client_statistics(rule, corner, weight, around).gaussian
            for weight, count in Counter(left).items()
        )
        exact = _pooled(rule, np.asarray(sums), left, around)
        if exact is None:  # it would not be pooled in a direct exchange either
            continue
        for moved in _rounded(np.asarray(sums), exponents, len(left)):
            found = _pooled(rule, moved, left, around)
            if found is None:
                return math.inf, math.inf
            shift = np.abs(found.mean - exact.mean) / np.sqrt(exact.variance)
            mean = max(mean, float(shift.max()))
            variance = max(variance, float(np.abs(found.variance / exact.variance - 1).max()))
    return mean, variance


def _lightest(weights: Sequence[float], fewest: int) -> Iterator[Sequence[float]]:
    """Return all weights, and the least so many of them: twice as many each time."""
    yield weights
    count = max(FEWEST_CLIENTS - 1, fewest)
    ordered = sorted(weight for weight in weights if weight > 0)
    while count < len(ordered):
        yield ordered[:count]
        count *= 2


def _rounded(sums: np.ndarray, exponents: Sequence[int], clients: int) -> Iterator[np.ndarray]:
    errors = np.array([rounding(exponent, clients) for exponent in exponents[:-1]])
    for signs in product((-1.0, 1.0), repeat=len(errors)):
        yield sums + (np.array(signs) * errors)[:, np.newaxis]


def _pooled(
    rule: PoolingRule, sums: np.ndarray, weights: Sequence[float], around: Posterior
) -> Posterior | None:
    try:
        return pooled_statistics(
            rule, Statistics(sums.copy(), np.zeros(0)), weights, around
        ).posterior
    except PosteriorError:
        return None
