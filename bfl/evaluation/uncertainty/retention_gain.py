"""Gain of sorting by an uncertainty over not sorting."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics.base import exact_mean
from bfl.evaluation.uncertainty.retention import retention_curve

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

    Args:
        values_per_example: (N,) finite values, such as correctness.
        uncertainty: (N,) uncertainties.
        higher_is_better: Which way is up for the values.

    Raises:
        ValueError: See ``retention_curve``.

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
