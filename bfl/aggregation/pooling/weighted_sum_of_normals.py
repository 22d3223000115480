"""The distribution of the weighted sum of independent normal variables."""

from __future__ import annotations

from typing import ClassVar

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals, pooling_rules


@pooling_rules.register(
    "weighted-sum-of-normals", aliases=("ws", "gaa", "gaussian-arithmetic-aggregation")
)
class WeightedSumOfNormalsRule(PoolingRule):
    """The distribution of Σ ω_k θ_k for independent θ_k ~ N(μ_k, σ_k²).

    μ = Σ ω_k μ_k and σ² = Σ ω_k² σ_k², with Σ ω_k = 1; never wider than naive weighted averaging.

    Source: Fischer et al. (2024), section 2.5.2, equation (11); Ozer et al. (2022), section 3.2,
    equation (5), as Gaussian arithmetic aggregation.
    """

    averages_means: ClassVar[bool] = True

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω μ and ω² σ², arrays (B,)."""
        return weight * mean, weight**2 * variance

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the sums divided by W and by W², the weights' sum, arrays (B,)."""
        mean, variance = sums
        return Decoded(mean / totals.weight, variance / totals.weight**2)
