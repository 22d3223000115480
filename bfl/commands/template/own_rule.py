"""A pooling rule of my own."""

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals, pooling_rules


@pooling_rules.register("own-rule")
class OwnRule(PoolingRule):
    """Weighted averages of means and of standard deviations.

    μ = Σ ω_k μ_k and σ = Σ ω_k σ_k.  Source: mine.
    """

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return what is summed over the clients: ω μ and ω σ, arrays (B,)."""
        return weight * mean, weight * variance**0.5

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the pooled mean and variance, arrays (B,)."""
        mean, deviation = sums
        return Decoded(mean / totals.mass, (deviation / totals.mass) ** 2)
