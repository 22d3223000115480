"""Retention curves: how far discarding the most uncertain predictions helps.

The gain is over not sorting, and its control is what an order at random reaches by chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics.base import exact_mean
from bfl.evaluation.prediction.predictions import FloatArray


def random_gain(values_per_example: npt.ArrayLike) -> float:
    """Return the root mean square, over all orders of values (N,), of their retention gain.

    The mean over all orders is 0, so this is how far chance alone takes the area from the mean of
    all examples: a gain of less than about twice as much says nothing. With weights
    w_i = Σ_{n ≥ i} 1/(nN) of the example that is kept i-th longest, the variance over permutations
    is Σ(w_i − w̄)² Σ(v_j − v̄)² / (N − 1).

    Source:
        The variance of a linear rank statistic, for instance Hájek, Šidák & Sen (1999), "Theory of
        rank tests", section 3.3.
    """
    values = np.asarray(values_per_example, np.float64)
    count = values.size
    if count < 2:
        return 0.0
    weights = np.cumsum(1.0 / np.arange(count, 0, -1))[::-1] / count
    spread = math.fsum((weights - 1.0 / count) ** 2)
    return math.sqrt(spread * math.fsum((values - exact_mean(values)) ** 2) / (count - 1))


RESOLUTION = (16 * 2.0**-24) ** 2
"""An uncertainty below this, 9.1e-13, is none: probabilities that differ by less than 16 roundings
of float32 differ by no more than the arithmetic that gave them."""


def retention_gain(
    values_per_example: npt.ArrayLike, uncertainty: npt.ArrayLike, *, higher_is_better: bool
) -> float:
    """Return by how much the area under a retention curve is better than the mean of all examples.

    0 for an uncertainty that knows nothing, negative for one that is surest where it errs. What is
    below ``RESOLUTION`` counts as 0, and examples of equal uncertainty as tied: an epistemic part
    that is nothing but rounding noise gains nothing, however well the noise happens to sort.

    Example:
        >>> round(retention_gain([1, 0, 1, 0], [0.1, 0.2, 0.2, 0.9], higher_is_better=True), 4)
        0.2292
        >>> retention_gain([1, 0], [1e-14, 3e-13], higher_is_better=True)
        0.0
    """
    ranks = np.asarray(uncertainty, np.float64)
    ranks = np.where(ranks < RESOLUTION, 0.0, ranks)
    area = retention_curve(values_per_example, ranks).area
    gain = area - exact_mean(np.asarray(values_per_example, np.float64))
    return gain if higher_is_better else 0.0 - gain


@dataclass(frozen=True)
class RetentionCurve:
    """The mean of a per-example value over the examples retained, for every number retained.

    Attributes:
        fraction: (T,) fractions of the examples retained, n/N for n = 1…N, ascending.
        value: (T,) means over the n least uncertain examples, in the value's unit.
        area: The mean of ``value``, in the value's unit.
    """

    fraction: FloatArray
    value: FloatArray
    area: float

    def at(self, fractions: npt.ArrayLike) -> FloatArray:
        """Return the curve on a grid, linear between two numbers retained."""
        grid = np.asarray(fractions, dtype=np.float64)
        if not np.all((grid >= 0.0) & (grid <= 1.0)):
            raise ValueError("fractions of the data retained must lie in [0, 1]")
        return np.interp(grid, self.fraction, self.value)


def retention_curve(
    values_per_example: npt.ArrayLike, uncertainty: npt.ArrayLike
) -> RetentionCurve:
    """Return the mean value of the n least uncertain examples for n = 1…N.

    Examples of equal uncertainty all count with the mean value of their group, which is the
    expectation over breaking the ties at random. The order of the data does not matter, to the
    last bit: what is summed is sorted by uncertainty and then by value, so that the same examples
    always meet the same additions.

    The area is the mean of the curve over n = 1…N. The trapezoid over fractions would begin at
    1/N, have a width of 1 − 1/N only, and vanish for N = 1; the mean gives a constant curve its
    constant, and a ranking that knows nothing the mean over all examples, whatever N, so areas of
    test sets of different size can be compared.

    Example:
        >>> curve = retention_curve([1, 0, 1, 0], [0.1, 0.2, 0.2, 0.9])
        >>> curve.fraction.tolist(), curve.value.round(4).tolist(), round(curve.area, 4)
        ([0.25, 0.5, 0.75, 1.0], [1.0, 0.75, 0.6667, 0.5], 0.7292)

    Reference:
        Filos et al. (2019), "A systematic comparison of Bayesian deep learning robustness in
        diabetic retinopathy tasks"; Fischer et al. (2024), section 3.3 and Fig. 2.
    """
    values, ranks = (
        np.asarray(given, dtype=np.float64) for given in (values_per_example, uncertainty)
    )
    if values.ndim != 1 or values.shape != ranks.shape or not values.size:
        raise ValueError(
            f"values have shape {values.shape} and uncertainties {ranks.shape}; expected (N,) "
            "both, N at least 1"
        )
    if np.isnan(ranks).any():
        raise ValueError(f"{int(np.isnan(ranks).sum())} of {ranks.size} uncertainties are NaN")
    if not np.isfinite(values).all():
        raise ValueError(
            f"{int((~np.isfinite(values)).sum())} of {values.size} values are not finite"
        )
    order = np.lexsort((values, ranks))
    values, ranks = values[order], ranks[order]
    retained = np.arange(1, values.size + 1, dtype=np.float64)

    starts = np.flatnonzero(np.concatenate(([True], ranks[1:] != ranks[:-1])))
    sizes = np.diff(np.append(starts, values.size))
    sums = np.add.reduceat(values, starts)
    before = np.concatenate(([0.0], np.cumsum(sums)[:-1]))
    within = retained - np.repeat(starts, sizes)  # 1, 2, ... inside each group
    curve = (np.repeat(before, sizes) + within * np.repeat(sums / sizes, sizes)) / retained
    return RetentionCurve(retained / values.size, curve, math.fsum(curve) / values.size)
