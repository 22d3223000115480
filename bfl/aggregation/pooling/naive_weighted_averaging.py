"""Averages of means, each with a rule of its own for variances."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

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
    power: ClassVar[int] = 1
    """The power p of the weights by which variances are multiplied."""

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω μ and ωᵖ σ², arrays (B,)."""
        mean *= weight
        variance *= weight**self.power
        return mean, variance

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return both sums divided by W and by Wᵖ, the weights' sum, arrays (B,)."""
        mean, variance = sums
        mean /= totals.weight
        variance /= totals.weight**self.power
        return Decoded(mean, variance)


@pooling_rules.register(
    "weighted-sum-of-normals", aliases=("ws", "gaa", "gaussian-arithmetic-aggregation")
)
class WeightedSumOfNormalsRule(NaiveWeightedAveragingRule):
    """The distribution of Σ ω_k θ_k for independent θ_k ~ N(μ_k, σ_k²).

    μ = Σ ω_k μ_k and σ² = Σ ω_k² σ_k², with Σ ω_k = 1; never wider than naive weighted averaging.

    Source: Fischer et al. (2024), section 2.5.2, equation (11); Ozer et al. (2022), section 3.2,
    equation (5), as Gaussian arithmetic aggregation.
    """

    accepts_points: ClassVar[bool] = False
    power: ClassVar[int] = 2


@pooling_rules.register(
    "log-variance-averaging", aliases=("aalv", "arithmetic-aggregation-with-log-variance")
)
class LogVarianceAveragingRule(NaiveWeightedAveragingRule):
    """Weighted averages of the means and of the logarithms of the variances.

    μ = Σ ω_k μ_k and σ² = exp(Σ ω_k log σ_k²), with Σ ω_k = 1: the variances' weighted geometric
    mean.

    Source: Ozer et al. (2022), section 3.3, equation (6), as arithmetic aggregation with log
    variance.
    """

    accepts_points: ClassVar[bool] = False

    def has(self) -> frozenset[str]:
        """Return that means, points and log σ are averaged."""
        return super().has() | {"averaged-values"}

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω μ and ω log σ², arrays (B,)."""
        return super().encode(mean, np.log(variance, out=variance), weight, block)

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the average mean and the exponential of the average log-variance, arrays (B,)."""
        averages = super().decode(sums, totals, block)
        return Decoded(averages.mean, np.exp(averages.variance, out=averages.variance))
