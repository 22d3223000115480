"""Range of values that clients and server agree on, and the bound of a pooled posterior's rounding.

Both are known before anybody trains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from bfl.aggregation.pooling import PoolingRule, Statistics, client_statistics, pooled_statistics
from bfl.errors import ConfigurationError, PosteriorError
from bfl.federation.secure_aggregation.masking import (
    FEWEST_CLIENTS,
    Neighbourhood,
    exponent_for,
    rounding,
)
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import Vector

Array = npt.NDArray[np.float64]

INSIDE = 1.0 - 2.0**-30
"""Factor that keeps the rounding of a difference from the previous mean within the reach."""

MEAN_ERROR = 0.01
"""Greatest error of a pooled mean, in its pooled standard deviations."""

VARIANCE_ERROR = 1e-3
"""Greatest error of a pooled variance, as a share of it."""


@dataclass(frozen=True)
class SecureSums:
    """Settings by which clients add up what the server may only know the sum of."""

    value_range: ValueRange
    neighbourhood: Neighbourhood


@dataclass(frozen=True)
class ValueRange:
    """Range of the posteriors that a client may send.

    Attributes:
        reach: How far a mean may be from the previous global mean.
    """

    reach: float
    least_deviation: float
    greatest_deviation: float
    greatest_point: float

    def check(self, posterior: Posterior, previous: Posterior) -> None:
        """Raise if a posterior is outside: it could not be told apart from another in a sum."""
        deviation = np.sqrt(posterior.variance.astype(np.float64))
        shift = np.abs(posterior.mean.astype(np.float64) - previous.mean)
        low, high = self.least_deviation, self.greatest_deviation
        point = self.greatest_point
        for key, what, outside in (
            ("reach", f"means further than {self.reach:g} from those sent", shift > self.reach),
            ("least-deviation", f"standard deviations below {low:g}", deviation < low),
            ("greatest-deviation", f"standard deviations above {high:g}", deviation > high),
            (
                "greatest-point",
                f"point parameters beyond ±{point:g}",
                np.abs(posterior.point) > point,
            ),
        ):
            if outside.any():
                raise PosteriorError(
                    f"the posterior has {np.count_nonzero(outside)} of {outside.size} {what}, and "
                    f"masked sums hold no others; allowed: a wider range (masked-{key}), or "
                    "exchange='direct'"
                )

    def holding(self, posterior: Posterior, previous: Posterior) -> Posterior:
        """Return a posterior with each value outside at the nearest edge, in the same types."""
        around, reach = previous.mean.astype(np.float64), self.reach * INSIDE
        return Posterior(
            _held(posterior.mean, around - reach, around + reach),
            _held(posterior.variance, self.least_deviation**2, self.greatest_deviation**2),
            _held(posterior.point, -self.greatest_point, self.greatest_point),
        )

    def corners(self, previous: Posterior) -> tuple[Posterior, list[Posterior]]:
        """Return what is at the edges of the range, few numbers in place of all parameters.

        Returns:
            The extremes of the previous posterior, in all combinations (4,), and the posteriors at
            the corners of a client's range around them. A rule's statistics are monotone in a
            client's mean and variance, so those of all clients lie between those of the corners.
        """
        if not previous.size:
            nothing = Posterior(np.zeros(0), np.zeros(0))
            return nothing, [nothing]
        means, variances = previous.mean, previous.variance
        extremes = product(
            (float(means.min()), float(means.max())),
            (float(variances.min()), float(variances.max())),
        )
        mean, variance = np.array(list(extremes)).T
        edges = product((-self.reach, self.reach), (self.least_deviation, self.greatest_deviation))
        return Posterior(mean, variance), [
            Posterior(mean + shift, np.full_like(variance, deviation**2))
            for shift, deviation in edges
        ]


def _held(values: Vector, low: Array | float, high: Array | float) -> Vector:
    """Return values (N,) between bounds, also after rounding to their type."""
    least, greatest = np.asarray(low, np.float64), np.asarray(high, np.float64)
    held = np.clip(values.astype(np.float64), least, greatest).astype(values.dtype)
    # What was rounded out of the bounds moves by one place.
    up, down = values.dtype.type(np.inf), values.dtype.type(-np.inf)
    held = np.where(held < least, np.nextafter(held, up), held)
    return np.where(held > greatest, np.nextafter(held, down), held)


def agreed_exponents(
    rule: PoolingRule, allowed: ValueRange, previous: Posterior, weights: Sequence[float]
) -> list[int]:
    """Return the exponents of a rule's statistics and, last, of the point parameters.

    They are the finest with which no sum over clients within the range leaves the ring.
    """
    around, corners = allowed.corners(previous)
    totals = np.zeros(rule.statistics)
    for weight in weights:
        statistics = [
            np.abs(client_statistics(rule, corner, weight, around).gaussian) for corner in corners
        ]
        totals += np.max(statistics, axis=(0, 2), initial=0.0)
    point = allowed.greatest_point * math.fsum(weights)
    return [exponent_for(float(total)) for total in (*totals, point)]


def check_accuracy(
    rule: PoolingRule,
    allowed: ValueRange,
    previous: Posterior,
    weights: Sequence[float],
    fewest: int | None = None,
) -> None:
    """Raise ConfigurationError if rounding could carry the pool of clients at a corner too far.

    Also where the heaviest clients drop out: the grid is that of all clients' weights.

    Args:
        fewest: How many clients have to stay; None: half of them.
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


def _lightest(weights: Sequence[float], fewest: int) -> Iterator[Sequence[float]]:
    """Yield all weights, and the least so many of them: twice as many each time."""
    yield weights
    count = max(FEWEST_CLIENTS - 1, fewest)
    ordered = sorted(weight for weight in weights if weight > 0)
    while count < len(ordered):
        yield ordered[:count]
        count *= 2


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
        left: The weights of the clients that stay; all by default.
    """
    around, corners = allowed.corners(previous)
    exponents = agreed_exponents(rule, allowed, previous, weights)
    left = weights if left is None else left
    errors = np.array([rounding(exponent, len(left)) for exponent in exponents[:-1]])
    mean = variance = 0.0
    for corner in corners if previous.size else ():
        # Of equal weights one stands for all: this is asked before every round.
        sums: Array = np.asarray(
            sum(
                count * client_statistics(rule, corner, weight, around).gaussian
                for weight, count in Counter(left).items()
            )
        )
        exact = _pooled(rule, sums, left, around)
        if exact is None:  # it would not be pooled in a direct exchange either
            continue
        for signs in product((-1.0, 1.0), repeat=len(errors)):
            found = _pooled(rule, sums + (np.array(signs) * errors)[:, np.newaxis], left, around)
            if found is None:
                return math.inf, math.inf
            shift = np.abs(found.mean - exact.mean) / np.sqrt(exact.variance)
            mean = max(mean, float(shift.max()))
            variance = max(variance, float(np.abs(found.variance / exact.variance - 1).max()))
    return mean, variance


def _pooled(
    rule: PoolingRule, sums: Array, weights: Sequence[float], around: Posterior
) -> Posterior | None:
    statistics = Statistics(sums.copy(), np.zeros(0))
    try:
        return pooled_statistics(rule, statistics, weights, around).posterior
    except PosteriorError:
        return None
