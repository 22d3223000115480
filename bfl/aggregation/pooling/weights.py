"""Clients' weights: checked, and brought to sum 1."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bfl.errors import PosteriorError


def checked_weight(weight: float) -> float:
    """Return a weight that is finite and not negative.

    Raises:
        ValueError: It is neither.
    """
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"a weight is {weight}; expected a finite number that is not negative")
    return float(weight)


def normalised(weights: Iterable[float]) -> list[float]:
    """Return weights in proportion to those given, with sum 1.

    Raises:
        PosteriorError: No weight is positive.
        ValueError: A weight is negative or not finite.
    """
    checked = [checked_weight(weight) for weight in weights]
    largest = max(checked, default=0.0)
    if largest == 0:
        raise PosteriorError("nothing to pool: no client has a positive weight")
    # Divided by the largest first, so that the sum can neither overflow nor underflow.
    scaled = [weight / largest for weight in checked]
    total = math.fsum(scaled)
    return [weight / total for weight in scaled]
