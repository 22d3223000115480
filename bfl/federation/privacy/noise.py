"""Noise of privacy: its random numbers, and the vector of an update that takes it."""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from bfl.posteriors import Posterior

Array = npt.NDArray[np.float64]

GREATEST_VALUE = 1e30
"""Bound of means and points: noise leads no value out of float32."""

GREATEST_LOG_VARIANCE = 80.0
"""Bound of |log σ²|: e^−80 and e^80 are normal numbers of float32."""

MOST_HALVINGS = 1000
"""The most halvings of 1/2, of which 37 standard deviations are left."""


class SystemNormals:
    """Random numbers from the operating system's randomness, which no seed repeats.

    Each normal one is Φ⁻¹ of a uniform number that is as exact near 0 as anywhere, with a random
    sign, so that no tail is cut off. The noise's floating point is not hidden (Mironov 2012, "On
    significance of the least significant bits for differential privacy").
    """

    def standard_normal(self, size: int) -> Array:
        """Return so many independent numbers (size,)."""
        from scipy.special import ndtri  # a fifth of a second of every command

        words = self._words(size)
        negative = (words & np.uint64(1)).astype(bool)
        # In [1, 2), halved as often as fair coins fall: uniform in (0, 1/2), to its last bit.
        mantissa = 1.0 + (words >> np.uint64(12)).astype(np.float64) * 2.0**-52
        tails = ndtri(np.ldexp(mantissa, -2 - self._halvings(size)))
        return np.asarray(np.where(negative, tails, -tails), np.float64)

    def _halvings(self, size: int) -> npt.NDArray[np.int64]:
        """Return how often a fair coin falls in a row, (size,), at most 1,000 times."""
        found = np.zeros(size, np.int64)
        open_ones = np.arange(size)
        while open_ones.size:
            words = self._words(open_ones.size)
            # Its lowest bit that is set: a power of 2, whose exponent is exact.
            lowest = (words & (~words + np.uint64(1))).astype(np.float64)
            found[open_ones] += np.where(words == 0, 64, np.frexp(lowest)[1] - 1)
            open_ones = open_ones[(words == 0) & (found[open_ones] < MOST_HALVINGS)]
        return np.minimum(found, MOST_HALVINGS)

    def random(self, size: int) -> Array:
        """Return so many independent numbers (size,), uniform in [0, 1): multiples of 2^−52."""
        return (self._words(size) >> np.uint64(12)).astype(np.float64) * 2.0**-52

    @staticmethod
    def _words(size: int) -> npt.NDArray[np.uint64]:
        return np.frombuffer(secrets.token_bytes(8 * size), np.uint64)


Normals = SystemNormals | np.random.Generator
"""A source of independent standard normal numbers, and of uniform ones in [0, 1)."""


def difference(received: Posterior, learned: Posterior) -> Array:
    """Return the difference between two posteriors of one size, float64 (2 D + P,).

    Means (D,), points (P,) and logarithms of standard deviations (D,), in this order. In log σ any
    number is a difference, so that noise makes no variance negative.
    """
    return _coordinates(learned) - _coordinates(received)


def moved(received: Posterior, change: Array) -> Posterior:
    """Return the posterior that differs from another one by a vector, in the other one's types.

    Args:
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
