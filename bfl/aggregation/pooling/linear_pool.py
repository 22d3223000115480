"""The linear pool: moments of the mixture of clients' posteriors, of their means or of samples."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.aggregation.pooling.base import (
    EPSILON,
    Array,
    Block,
    Decoded,
    PoolingRule,
    Totals,
    pooling_rules,
)

SMALLEST = float(np.finfo(np.float64).tiny)


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


@pooling_rules.register("client-gaussian", aliases=("fedbe-gaussian",))
class ClientGaussianRule(LinearPoolRule):
    """The Gaussian fitted to the clients' means, as if each client were one observation.

    μ = Σ ω_k μ_k and σ² = max(Σ ω_k (μ_k − μ)², floor), with Σ ω_k = 1: the linear pool of
    posteriors without variance. The clients' own variances are not read.

    Networks of points are refused: point parameters are averaged, so no Gaussian would be fitted to
    anything.

    Chosen where the paper is silent: clients that agree would give a variance of 0, hence the
    floor.

    Source: Chen and Chao (2021), FedBE, section 3.3, equation (5).
    """

    statistics: ClassVar[int] = 2

    dispersion_floor: float = Field(1e-12, gt=0, allow_inf_nan=False)
    """smallest variance of the Gaussian fitted to the clients' means"""

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω (μ − c) and ω (μ − c)², arrays (B,)."""
        shift = mean - block.reference
        return weight * shift, weight * shift * shift

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the moments of the means, the variance raised to the floor, arrays (B,)."""
        first, second = sums
        means = self.mixture_of_means(first, second, totals, block)
        return Decoded(means.mean, np.maximum(means.variance, self.dispersion_floor))


@pooling_rules.register(
    "population-pooling", aliases=("ppa", "population-pooling-based-aggregation")
)
class PopulationPoolingRule(LinearPoolRule):
    """The mean and the variance of N samples, N ω_k of them from each client's posterior.

    For X_1 … X_n, n = Σ n_k, drawn n_k from each N(μ_k, σ_k²): μ = Σ X_i / n and
    σ² = Σ (X_i − μ)² / n. The divisor is n, as in the paper, and not n − 1.

    The samples are not drawn. The mean of n_k of them is exactly N(μ_k, σ_k² / n_k), their sum of
    squares around that mean is exactly σ_k² χ²(n_k − 1), and the two are independent; so two draws
    per client and parameter give the pooled moments exactly in distribution.

    Chosen where the paper is silent: n_k = max(1, round(N ω_k)), halves up, so n may differ from N
    by a few, and n divides. The draws depend on the client's generator and on the accumulator's
    block size alone.

    Source: Ozer et al. (2022), section 3.4, equation (7).
    """

    averages_means: ClassVar[bool] = False
    weights_are_fractions: ClassVar[bool] = True
    stochastic: ClassVar[bool] = True

    population_size: int = Field(1000, ge=2)
    """number N of samples drawn from all clients' posteriors together"""

    def mass(self, weight: float) -> float:
        """Return the number of samples of a client with this fraction of the weight."""
        # The small term makes a tie a tie whatever the rounding of the normalised weight.
        return float(max(1, math.floor(self.population_size * weight + 0.5 + 1e-9)))

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return n (x̄ − c), the sum of squares around x̄, and n (x̄ − c)², arrays (B,)."""
        samples = self.mass(weight)
        generator = block.generator
        if generator is None:
            raise ValueError(f"{self.name} draws random numbers: the block has no generator")
        noise = generator.standard_normal(mean.size)
        shift = mean - block.reference + noise * np.sqrt(variance / samples)
        # χ²(n − 1) is twice a gamma variable of shape (n − 1)/2, which is 0 for n = 1.
        scatter = generator.standard_gamma((samples - 1) / 2, mean.size) * (2.0 * variance)
        first = samples * shift
        return first, scatter, first * shift

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the mean and the variance of all samples, arrays (B,).

        One sample of each client may coincide to rounding. The variance is then not 0, which
        belongs to no Gaussian, but the smallest there is, and counts as clipped.
        """
        pooled = super().decode(sums, totals, block)
        return Decoded(pooled.mean, np.maximum(pooled.variance, SMALLEST))
