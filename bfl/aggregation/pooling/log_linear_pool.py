"""The log-linear pool: the weighted geometric mean of the clients' densities."""

from __future__ import annotations

from typing import ClassVar

from bfl.aggregation.pooling.base import Totals, pooling_rules
from bfl.aggregation.pooling.conflation import ConflationRule


@pooling_rules.register("log-linear-pool", aliases=("llp", "log-linear-pooling"))
class LogLinearPoolRule(ConflationRule):
    """The normalised weighted geometric mean of the clients' densities, Π q_k^ω_k.

    μ = Σ (ω_k μ_k/σ_k²) / Σ (ω_k/σ_k²) and σ² = 1 / Σ (ω_k/σ_k²), with Σ ω_k = 1: weighted
    conflation with 1 in the place of ω_max.

    Source: Fischer et al. (2024), section 2.5.4, equation (16) and the text before it, after
    Koliander et al. (2022).
    """

    uses_weights: ClassVar[bool] = True
    multiplies: ClassVar[bool] = False

    def variance_numerator(self, totals: Totals) -> float:
        """Return the sum of the weights."""
        return totals.weight
