"""The linear pool: the mean and the variance of the mixture of the clients' posteriors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bfl.aggregation.pooling.base import (
    EPSILON,
    Array,
    Block,
    Decoded,
    PoolingRule,
    Totals,
    pooling_rules,
)


@pooling_rules.register("linear-pool", aliases=("lp", "linear-pooling"))
class LinearPoolRule(PoolingRule):
    """The Gaussian with the mean and the variance of the mixture Σ ω_k N(μ_k, σ_k²).

    μ = Σ ω_k μ_k and σ² = Σ ω_k σ_k² + Σ ω_k (μ_k − μ)², with Σ ω_k = 1: the average of the
    variances plus the disagreement of the means.

    Three statistics are summed around a reference c, and not the two, μ and σ² + μ², that the
    formula suggests: with these, a σ of 1e-8 next to a μ of 1 is lost even in float64. The
    disagreement, a difference around c, is 0 where rounding alone could have made it.

    Source: Fischer et al. (2024), section 2.5.3, equations (12) to (14).
    """

    averages_means: ClassVar[bool] = True
    statistics: ClassVar[int] = 3

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω (μ − c), ω σ² and ω (μ − c)², arrays (B,)."""
        shift = mean - block.reference
        return weight * shift, weight * variance, weight * shift * shift

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return c plus the mean shift, and variance plus disagreement, arrays (B,)."""
        first, within, second = sums
        means = self.mixture_of_means(first, second, totals, block)
        return Decoded(means.mean, within / totals.mass + means.variance)

    @staticmethod
    def mixture_of_means(first: Array, second: Array, totals: Totals, block: Block) -> Decoded:
        """Return the moments of the means alone, arrays (B,)."""
        shift, square = first / totals.mass, second / totals.mass
        disagreement = square - shift * shift
        # The worst case of rounding in the two terms: K products, two sums over K and a square.
        noise = 2.0 * (totals.count + 2) * EPSILON * square
        return Decoded(block.reference + shift, np.where(disagreement > noise, disagreement, 0.0))
