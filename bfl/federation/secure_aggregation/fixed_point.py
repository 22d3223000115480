"""Real numbers as whole numbers modulo 2⁶⁴, whose sums are exact, and back.

A number x becomes round(x · 2ᵉ) modulo 2⁶⁴, for an exponent e that all clients share. Sums wrap
around and are taken for numbers from −2⁶³ to 2⁶³ − 1: right as long as the sum of the real numbers
lies within ±2⁶²⁻ᵉ, which who chooses the exponent sees to. The error of a sum over K numbers is at
most K · 2⁻ᵉ⁻¹, which is what rounding each of them makes.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Ring = npt.NDArray[np.uint64]


Array = npt.NDArray[np.float64]


HIGHEST = 62
"""Sums stay below 2 to this power, so that rounding cannot carry them across half of the ring."""


EXPONENTS = (-960, 960)
"""The least and the greatest exponent, for which the powers of 2 are float64 numbers."""


def exponent_for(greatest_sum: float) -> int:
    """Return the greatest exponent with which sums up to ± ``greatest_sum`` are within range.

    Raises:
        ValueError: The sum is not finite, or negative.
    """
    if not (math.isfinite(greatest_sum) and greatest_sum >= 0):
        raise ValueError(f"the greatest sum is {greatest_sum}; expected a finite number from 0")
    if not greatest_sum:
        return 0
    low, high = EXPONENTS
    # The sum lies in [2^(k-1), 2^k).
    return max(low, min(high, HIGHEST - math.frexp(greatest_sum)[1]))


def encoded(values: Array, exponent: int, into: Ring | None = None) -> Ring:
    """Return numbers (N,) as elements of the ring.

    Args:
        values: The numbers.
        exponent: The exponent.
        into: (N,) where the elements are written; by default a new vector.

    Raises:
        OverflowError: One of them alone is beyond the range; saying how many are.
    """
    found = np.empty(values.shape, np.uint64) if into is None else into
    beyond = 0
    for start in range(0, values.size, CHUNK):
        part = slice(start, start + CHUNK)
        scaled = np.rint(np.ldexp(values[part], exponent))
        outside = ~(np.abs(scaled) <= 2.0**HIGHEST)
        if outside.any():
            beyond += int(np.count_nonzero(outside))
        else:
            found[part] = scaled.astype(np.int64).view(np.uint64)
    if beyond:
        raise OverflowError(
            f"{beyond} of {values.size} values are beyond ±{math.ldexp(1.0, HIGHEST - exponent):g}"
        )
    return found


def decoded(total: Ring, exponent: int) -> Array:
    """Return the sum (N,) of numbers, given the sum of their elements of the ring."""
    values = total.view(np.int64).astype(np.float64)
    return np.ldexp(values, -exponent, out=values)


def rounding(exponent: int, clients: int) -> float:
    """Return the greatest error of a sum over so many clients."""
    return math.ldexp(clients, -exponent - 1)


CHUNK = 1 << 17
"""Numbers encoded or masked at a time: a MB, which stays in the processor's cache, and all the
memory that a large model takes besides its vector."""
