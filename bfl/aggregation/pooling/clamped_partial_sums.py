"""The two arithmetic rules of Ozer et al. as their published code has them, with its clamps."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals, pooling_rules


class ClampedPartialSums(PoolingRule):
    """A sum of variances in which every partial sum is clamped before the next client is added.

    With c the clamp, clients' variances are clamped to [e⁻ᶜ, eᶜ] first. With f = e⁻ᶜ and
    a_k = ω_k σ_k² (or ω_k² σ_k²), what the code gives for K > 1 clients is max(a_1, f) + a_2 + … +
    a_K, with client 1 drawn at random in each round. Here, the pool is the mean over all orders,
    Σ a_k + 1/K Σ max(f − a_k, 0). Of a single client neither clamps a sum.
    """

    averages_means: ClassVar[bool] = True
    statistics: ClassVar[int] = 3
    weights_are_fractions: ClassVar[bool] = True
    power: ClassVar[int]
    """The power of the weights by which variances are multiplied."""

    partial_sum_clamp: float = Field(8.0, ge=0.0, le=80.0)
    """c, logarithms of variances and their partial sums being clamped to [-c, c]; 0: not clamped"""

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω μ, a and max(f − a, 0), arrays (B,)."""
        low = 0.0
        if self.partial_sum_clamp:
            low, high = math.exp(-self.partial_sum_clamp), math.exp(self.partial_sum_clamp)
            variance = np.clip(variance, low, high)
        weighted = weight**self.power * variance
        return weight * mean, weighted, np.maximum(low - weighted, 0.0)

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the average mean and the clamped sum of the variances, arrays (B,)."""
        mean, variance, shortfall = sums
        variance = variance / totals.weight**self.power
        if totals.count > 1:
            variance = variance + shortfall / totals.count
        return Decoded(mean / totals.weight, variance)


@pooling_rules.register("clamped-naive-weighted-averaging")
class ClampedNaiveWeightedAveragingRule(ClampedPartialSums):
    """Naive weighted averaging with variances and their partial sums clamped from below.

    μ = Σ ω_k μ_k and σ² = Σ ω_k σ_k², whose variances are clamped to [e⁻⁸, e⁸] and whose sum counts
    its first summand as e⁻⁸ at least. A variance that is smaller grows in each round, until the
    smallest share of it is no less than that.

    Source: Ozer et al. (2022), EAA as in their published code (``arithmetic_average_update``).
    """

    power: ClassVar[int] = 1


@pooling_rules.register("clamped-weighted-sum-of-normals")
class ClampedWeightedSumOfNormalsRule(ClampedPartialSums):
    """The weighted sum of normals with variances and their partial sums clamped from below.

    μ = Σ ω_k μ_k and σ² = Σ ω_k² σ_k², whose variances are clamped to [e⁻⁸, e⁸] and whose sum
    counts its first summand as e⁻⁸ at least. So the variance cannot vanish: with K equal clients
    it tends to e⁻⁸ K² / (K² − K + 1).

    Source: Ozer et al. (2022), GAA as in their published code
    (``arithmetic_average_varscale_update``).
    """

    power: ClassVar[int] = 2
