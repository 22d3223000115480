"""Weighted conflation: powers of the clients' densities, the heaviest client's power being 1."""

from __future__ import annotations

from typing import ClassVar

from bfl.aggregation.pooling.base import Totals, pooling_rules
from bfl.aggregation.pooling.conflation import ConflationRule


@pooling_rules.register("weighted-conflation", aliases=("wc", "cf", "conflation-aggregation"))
class WeightedConflationRule(ConflationRule):
    """The normalised product of the clients' densities raised to ω_k / ω_max.

    μ = Σ (ω_k μ_k/σ_k²) / Σ (ω_k/σ_k²) and σ² = ω_max / Σ (ω_k/σ_k²): never wider than the
    posterior of the client with the greatest weight. With equal weights it is conflation.

    Source: Fischer et al. (2024), section 2.5.4, equation (16); Ozer et al. (2022), section 3.5,
    equation (8), as conflation aggregation.
    """

    uses_weights: ClassVar[bool] = True

    def variance_numerator(self, totals: Totals) -> float:
        """Return the greatest weight."""
        return totals.weight_max
