"""Population pooling: the linear pool of finite samples from the clients' posteriors."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.aggregation.pooling.base import Array, Block, Decoded, Totals, pooling_rules
from bfl.aggregation.pooling.linear_pool import LinearPoolRule

SMALLEST = float(np.finfo(np.float64).tiny)


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
