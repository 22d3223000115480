"""Mechanism: what a part tells an account of the noise that it adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NO_BUDGET = 1e6
"""The default of a budget for ε, which no run with a meaning reaches."""


@dataclass(frozen=True)
class Mechanism:
    """Noised releases of a client, with what their ε is and may be.

    Attributes:
        metric: What ε is called in a round's record and among a run's metrics.
        multiplier_key: The configuration key of the noise.
        multiplier: Its value z, above 0.
        budget_key: The configuration key of the greatest ε.
        budget: Its value.
        delta: δ, in (0, 1).
        releases: How many a client makes in a round, of its number of epochs.
        epsilon: ε of so many releases.
        multiplier_for: The z with which so many releases, the second argument, have an ε.
    """

    metric: str
    multiplier_key: str
    multiplier: float
    budget_key: str
    budget: float
    delta: float
    releases: Callable[[int], int]
    epsilon: Callable[[int], float]
    multiplier_for: Callable[[float, int], float]
