"""An update's difference from what the client was sent, as one vector that takes any noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bfl.posteriors import Posterior

Array = npt.NDArray[np.float64]

GREATEST_VALUE = 1e30
"""Bound of means and points: noise leads no value out of float32."""

GREATEST_LOG_VARIANCE = 80.0
"""Bound of |log σ²|: e^−80 and e^80 are normal numbers of float32."""


def difference(received: Posterior, learned: Posterior) -> Array:
    """Return the difference between two posteriors of one size, float64 (2 D + P,).

    Means (D,), points (P,) and logarithms of standard deviations (D,), in this order. In log σ any
    number is a difference, so that noise makes no variance negative.
    """
    return _coordinates(learned) - _coordinates(received)


def moved(received: Posterior, change: Array) -> Posterior:
    """Return the posterior that differs from another one by a vector, in the other one's types.

    Args:
        received: The other one.
        change: (2 D + P,) finite, as ``difference`` gives it.
    """
    size, points = received.size, received.point.size
    there = _coordinates(received) + change
    mean, point, log_scale = np.split(there, [size, size + points])
    log_variance = np.clip(2.0 * log_scale, -GREATEST_LOG_VARIANCE, GREATEST_LOG_VARIANCE)
    return Posterior(
        np.clip(mean, -GREATEST_VALUE, GREATEST_VALUE).astype(received.mean.dtype),
        np.exp(log_variance).astype(received.variance.dtype),
        np.clip(point, -GREATEST_VALUE, GREATEST_VALUE).astype(received.point.dtype),
    )


def _coordinates(posterior: Posterior) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):  # whoever gets it looks
        log_scale = 0.5 * np.log(np.asarray(posterior.variance, np.float64))
    return np.concatenate([posterior.mean, posterior.point, log_scale], dtype=np.float64)
