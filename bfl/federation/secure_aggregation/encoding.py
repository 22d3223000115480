"""A client's statistics as one vector of the ring, and the sum of such vectors as statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bfl.aggregation.pooling import Statistics
from bfl.federation.secure_aggregation.fixed_point import Ring, decoded, encoded


def encoded_statistics(statistics: Statistics, exponents: Sequence[int]) -> Ring:
    """Return statistics (S, D) and (P,) as a vector (S·D + P,) of the ring.

    Args:
        statistics: A client's statistics.
        exponents: S + 1 exponents, the last one of the point parameters.

    Raises:
        OverflowError: A value is beyond the range of its exponent.
        ValueError: There are not as many exponents.
    """
    rows = (*statistics.gaussian, statistics.point)
    vector, start = np.empty(sum(row.size for row in rows), np.uint64), 0
    for row, exponent in zip(rows, exponents, strict=True):
        encoded(row, exponent, vector[start : start + row.size])
        start += row.size
    return vector


def decoded_statistics(
    total: Ring, exponents: Sequence[int], size: int, point_size: int
) -> Statistics:
    """Return the sums of statistics in a vector that ``encoded_statistics`` of clients add up to.

    Args:
        total: (S·D + P,) the sum.
        exponents: S + 1 exponents.
        size: The number D of Gaussian parameters.
        point_size: The number P of point parameters.
    """
    rows = len(exponents) - 1
    gaussian = np.empty((rows, size))
    for row, exponent in enumerate(exponents[:-1]):
        gaussian[row] = decoded(total[row * size : (row + 1) * size], exponent)
    return Statistics(gaussian, decoded(total[rows * size :][:point_size], exponents[-1]))
