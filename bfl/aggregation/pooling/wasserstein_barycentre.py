"""The Wasserstein barycentre of the clients' posteriors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals, pooling_rules


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
