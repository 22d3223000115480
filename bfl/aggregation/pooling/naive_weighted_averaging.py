"""Naive weighted averaging of means and of variances."""

from __future__ import annotations

from typing import ClassVar

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals, pooling_rules


@pooling_rules.register(
    "naive-weighted-averaging",
    aliases=("nwa", "eaa", "clp", "centered-linear-pool", "empirical-arithmetic-aggregation"),
)
class NaiveWeightedAveragingRule(PoolingRule):
    """Weighted averages of the means and of the variances, each on its own.

    μ = Σ ω_k μ_k and σ² = Σ ω_k σ_k², with Σ ω_k = 1. Of a network of points it is FedAvg.

    Source: Fischer et al. (2024), section 2.5.1, equation (10); Ozer et al. (2022), section 3.1,
    equation (4), as empirical arithmetic aggregation.
    """

    averages_means: ClassVar[bool] = True
    accepts_points: ClassVar[bool] = True

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω μ and ω σ², arrays (B,)."""
        return weight * mean, weight * variance

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return both sums divided by the sum of the weights, arrays (B,)."""
        mean, variance = sums
        return Decoded(mean / totals.weight, variance / totals.weight)
