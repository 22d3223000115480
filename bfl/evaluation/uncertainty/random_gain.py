"""The control of retention gains: what an order at random reaches by chance."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics.base import exact_mean


def random_gain(values_per_example: npt.ArrayLike) -> float:
    """Return the root mean square, over all orders of N examples, of their retention gain.

    The mean over all orders is 0, so this is how far chance alone takes the area from the mean of
    all examples: a gain of less than about twice as much says nothing. With weights
    w_i = Σ_{n ≥ i} 1/(nN) of the example that is kept i-th longest, the variance over permutations
    is Σ(w_i − w̄)² Σ(v_j − v̄)² / (N − 1).

    Args:
        values_per_example: (N,) finite values, such as correctness.

    Returns:
        The gain in the values' unit; 0 for one example.

    Source:
        The variance of a linear rank statistic, for instance Hájek, Šidák & Sen (1999), "Theory of
        rank tests", section 3.3.

    Example:
        >>> round(random_gain([1.0, 0.0]), 4)
        0.25
    """
    values = np.asarray(values_per_example, np.float64)
    count = values.size
    if count < 2:
        return 0.0
    weights = np.cumsum(1.0 / np.arange(count, 0, -1))[::-1] / count
    spread = math.fsum((weights - 1.0 / count) ** 2)
    return math.sqrt(spread * math.fsum((values - exact_mean(values)) ** 2) / (count - 1))
