"""Weighted averages of means, and of variances, their roots or logarithms, or clamped sums."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

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


@pooling_rules.register("wasserstein-barycentre", aliases=("wb", "wasserstein-barycenter"))
class WassersteinBarycentreRule(PoolingRule):
    """Weighted averages of the means and of the standard deviations.

    μ = Σ ω_k μ_k and σ = Σ ω_k σ_k, with Σ ω_k = 1: of all Gaussians, the one whose weighted sum of
    squared 2-Wasserstein distances from the clients' is least, where covariances are diagonal.
    Never narrower than log-variance averaging and never wider than naive weighted averaging.

    Source: Jamoussi et al. (2024), "BA-BFL: Barycentric aggregation for Bayesian federated
    learning", arXiv 2412.11646; Agueh and Carlier (2011), "Barycenters in the Wasserstein space",
    for the barycentre of Gaussians.
    """

    averages_means: ClassVar[bool] = True

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω μ and ω σ, arrays (B,)."""
        return weight * mean, weight * np.sqrt(variance)

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the average mean and the square of the average deviation, arrays (B,)."""
        mean, deviation = sums
        return Decoded(mean / totals.weight, np.square(deviation / totals.weight))


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
