"""Averaging of means and of log-variances."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals, pooling_rules


@pooling_rules.register(
    "log-variance-averaging", aliases=("aalv", "arithmetic-aggregation-with-log-variance")
)
class LogVarianceAveragingRule(PoolingRule):
    """Weighted averages of the means and of the logarithms of the variances.

    μ = Σ ω_k μ_k and σ² = exp(Σ ω_k log σ_k²), with Σ ω_k = 1: the variances' weighted geometric
    mean.

    Source: Ozer et al. (2022), section 3.3, equation (6), as arithmetic aggregation with log
    variance.
    """

    averages_means: ClassVar[bool] = True

    def has(self) -> frozenset[str]:
        """Return that means, points and log σ are averaged."""
        return super().has() | {"averaged-values"}

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω μ and ω log σ², arrays (B,)."""
        return weight * mean, weight * np.log(variance)

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the average mean and the exponential of the average log-variance, arrays (B,)."""
        mean, log_variance = sums
        return Decoded(mean / totals.weight, np.exp(log_variance / totals.weight))
