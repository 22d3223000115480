"""FedBE's Gaussian over client models: the dispersion of the clients' means."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.aggregation.pooling.base import Array, Block, Decoded, Totals, pooling_rules
from bfl.aggregation.pooling.linear_pool import LinearPoolRule


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
