"""Spread of the clients' variances: how far a pool by precisions differs from an average."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bfl.posteriors import Posterior

Array = npt.NDArray[np.float64]

SPREAD = "log-precision-spread"
"""√(mean over parameters of the clients' weighted variance of log 1/σ²); 0 where all have the same
variances. 0.1 is about 10 % of a precision."""

DISTANCE = "distance-from-average"
"""‖μ − Σ ω_k μ_k‖ / ‖Σ ω_k μ_k − μ_previous‖: by how much the pooled mean differs from the clients'
average, as a share of the average's step; 0 for FedAvg."""


class PrecisionSpread:
    """The sums over a round's clients; the memory does not grow with their number.

    Source: Yang et al. (2023), HBFL, the remark after Eq. 3.12 that with equal covariances its pool
    is FedAvg's.
    """

    def __init__(self) -> None:
        # Of means, log-precisions and their squares.
        self._sums: Array | None = None
        self._weight = 0.0

    def add(self, posterior: Posterior, weight: float) -> None:
        """Add a client's posterior with its weight in the pool, in the scale of all others'."""
        if self._sums is None:
            self._sums = np.zeros((3, posterior.size))
        mean, first, second = self._sums
        log_precision = -np.log(posterior.variance.astype(np.float64))
        mean += weight * posterior.mean.astype(np.float64)
        first += weight * log_precision
        second += weight * np.square(log_precision)
        self._weight += weight

    def metrics(self, previous: Posterior, pooled: Posterior) -> dict[str, float]:
        """Return ``log-precision-spread`` and ``distance-from-average``."""
        if self._sums is None or not self._sums.size or self._weight <= 0:
            return {}
        average, centre, squares = self._sums / self._weight
        variance = squares - np.square(centre)
        step = float(np.linalg.norm(average - previous.mean))
        distance = float(np.linalg.norm(pooled.mean - average))
        return {
            SPREAD: float(np.sqrt(np.mean(np.maximum(variance, 0.0)))),
            DISTANCE: distance / step if step else 0.0,
        }
