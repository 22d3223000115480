"""The range of values that clients and server agree on, and what follows of it for sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from bfl.aggregation.pooling import PoolingRule, client_statistics
from bfl.errors import PosteriorError
from bfl.federation.secure_aggregation.fixed_point import exponent_for
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import Vector

Array = npt.NDArray[np.float64]

INSIDE = 1.0 - 2.0**-30
"""Factor that keeps the rounding of a difference from the previous mean within the reach."""


@dataclass(frozen=True)
class ValueRange:
    """Range of the posteriors that a client may send.

    Attributes:
        reach: How far a mean may be from the previous global mean.
        least_deviation: The least standard deviation.
        greatest_deviation: The greatest standard deviation.
        greatest_point: The greatest absolute value of a point parameter.
    """

    reach: float
    least_deviation: float
    greatest_deviation: float
    greatest_point: float

    def check(self, posterior: Posterior, previous: Posterior) -> None:
        """Raise if a posterior is outside: it could not be told apart from another in a sum.

        Raises:
            PosteriorError: Naming the vector, how many of its values are outside, and the range.
        """
        deviation = np.sqrt(posterior.variance.astype(np.float64))
        shift = np.abs(posterior.mean.astype(np.float64) - previous.mean)
        low, high = self.least_deviation, self.greatest_deviation
        for what, outside, key in (
            (f"means further than {self.reach:g} from those sent", shift > self.reach, "reach"),
            (f"standard deviations below {low:g}", deviation < low, "least-deviation"),
            (f"standard deviations above {high:g}", deviation > high, "greatest-deviation"),
            (
                f"point parameters beyond ±{self.greatest_point:g}",
                np.abs(posterior.point) > self.greatest_point,
                "greatest-point",
            ),
        ):
            count = int(np.count_nonzero(outside))
            if count:
                raise PosteriorError(
                    f"the posterior has {count} of {outside.size} {what}, and masked sums hold no "
                    f"others; allowed: a wider range (masked-{key}), or exchange='direct'"
                )

    def holding(self, posterior: Posterior, previous: Posterior) -> Posterior:
        """Return a posterior with each value outside at the nearest edge, in the same types.

        Args:
            posterior: The posterior.
            previous: The previous global posterior.
        """
        around, reach = previous.mean.astype(np.float64), self.reach * INSIDE
        return Posterior(
            _held(posterior.mean, around - reach, around + reach),
            _held(posterior.variance, self.least_deviation**2, self.greatest_deviation**2),
            _held(posterior.point, -self.greatest_point, self.greatest_point),
        )

    def corners(self, previous: Posterior) -> tuple[Posterior, list[Posterior]]:
        """Return what is at the edges of the range, few numbers in place of all parameters.

        Args:
            previous: The previous global posterior.

        Returns:
            The extremes of the previous posterior, in all combinations (4,), and the posteriors at
            the corners of a client's range around them. A rule's statistics are monotone in a
            client's mean and variance, so those of all clients lie between those of the corners.
        """
        if not previous.size:
            nothing = Posterior(np.zeros(0), np.zeros(0))
            return nothing, [nothing]
        extremes = [
            (float(vector.min()), float(vector.max()))
            for vector in (previous.mean, previous.variance)
        ]
        mean, variance = np.array(list(product(*extremes))).T
        around = Posterior(mean, variance)
        edges = product((-self.reach, self.reach), (self.least_deviation, self.greatest_deviation))
        return around, [
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

    Args:
        rule: The pooling rule.
        allowed: The range of the clients' posteriors.
        previous: The previous global posterior.
        weights: The weights of all clients that are asked.
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
