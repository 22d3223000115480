"""Where the standard normal numbers of privacy's noise come from."""

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


class SystemNormals:
    """Standard normal numbers from the operating system's randomness, which no seed repeats.

    Each is Φ⁻¹ of 52 random bits: cut off beyond 8.2 standard deviations, of which there is one in
    10^15. What is left of floating point in the noise is not hidden (Mironov 2012, "On significance
    of the least significant bits for differential privacy").
    """

    def standard_normal(self, size: int) -> Array:
        """Return so many independent numbers (size,)."""
        words = np.frombuffer(secrets.token_bytes(8 * size), np.uint64)
        # The half keeps the ends out, at which Φ⁻¹ is infinite.
        uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        return np.asarray(ndtri(uniform), np.float64)
