"""Where the random numbers of privacy come from: its noise, and which batches are drawn."""

from __future__ import annotations

import secrets
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

Array = npt.NDArray[np.float64]


class Normals(Protocol):
    """A source of standard normal numbers, such as a NumPy generator."""

    def standard_normal(self, size: int) -> Array:
        """Return so many independent numbers (size,)."""


class Draws(Normals, Protocol):
    """A source of standard normal and of uniform numbers, such as a NumPy generator."""

    def random(self, size: int) -> Array:
        """Return so many independent numbers (size,), uniform in [0, 1)."""


class SystemNormals:
    """Random numbers from the operating system's randomness, which no seed repeats.

    Each normal one is Φ⁻¹ of 52 random bits: cut off beyond 8.2 standard deviations, of which there
    is one in 10^15. What is left of floating point in the noise is not hidden (Mironov 2012, "On
    significance of the least significant bits for differential privacy").
    """

    def standard_normal(self, size: int) -> Array:
        """Return so many independent numbers (size,)."""
        # The half of a step keeps the ends out, at which Φ⁻¹ is infinite.
        return np.asarray(ndtri(self.random(size) + 2.0**-53), np.float64)

    def random(self, size: int) -> Array:
        """Return so many independent numbers (size,), uniform in [0, 1): multiples of 2^−52."""
        words = np.frombuffer(secrets.token_bytes(8 * size), np.uint64)
        return (words >> np.uint64(12)).astype(np.float64) * 2.0**-52
