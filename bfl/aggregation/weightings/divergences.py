"""Weights by divergences: from the previous global posterior, or from the nearest other client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bfl.aggregation.weightings.base import Array, Posteriors, Weighting, weightings
from bfl.posteriors.divergence import divergence, pairwise_divergences
from bfl.posteriors.posterior import Posterior


@weightings.register("distance", aliases=("distance-to-fixed-point",))
class Distance(Weighting):
    """The inverse divergence of the previous global posterior from a client's, normalised.

    γ_k = 1/KL[q_g ‖ q_k], ω_k = γ_k / Σ γ_j, with q_g the previous global posterior: clients that
    stay near it count more.

    Source: Fischer et al. (2024), section 2.6.4, equation (21).
    """

    requires_gaussian: ClassVar[bool] = True
    requires_previous: ClassVar[bool] = True

    def gamma(
        self, posteriors: Posteriors, num_examples: Sequence[int], previous: Posterior | None
    ) -> Array:
        """Return γ up to a common factor, (K,)."""
        if previous is None:
            raise ValueError(f"{self.name} needs the previous global posterior; there is none")
        results = [
            divergence(previous.mean, previous.variance, posterior.mean, posterior.variance)
            for posterior in posteriors
        ]
        return inverse(np.array([max(result) for result in results]))


@weightings.register("max-discrepancy", aliases=("maximum-discrepancy", "max-disc"))
class MaximumDiscrepancy(Weighting):
    """The inverse divergence of a client from the nearest other one, normalised.

    γ_k = max over j ≠ k of 1/KL[q_k ‖ q_j], ω_k = γ_k / Σ γ_j: clients that are extreme compared
    with the others count little. Equation (20) lets j be k, whose divergence is 0; that j is left
    out here.

    Source: Fischer et al. (2024), section 2.6.3, equation (20), after Koliander et al. (2022).
    """

    requires_gaussian: ClassVar[bool] = True

    def gamma(
        self, posteriors: Posteriors, num_examples: Sequence[int], previous: Posterior | None
    ) -> Array:
        """Return γ up to a common factor, (K,); one client has no other and gets 1."""
        if len(posteriors) == 1:
            return np.ones(1)
        values, resolutions = pairwise_divergences(
            [posterior.mean for posterior in posteriors],
            [posterior.variance for posterior in posteriors],
        )
        divergences = np.maximum(values, resolutions)
        np.fill_diagonal(divergences, np.inf)
        return inverse(divergences.min(axis=1))


def inverse(divergences: Array) -> Array:
    """Return 1/KL up to a common factor, (K,), the greatest 1, of divergences above 0 (K,).

    Raised to their resolutions, they give a client that coincides with another one, or with the
    fixed point, a great weight and not an infinite one.
    """
    return np.asarray(divergences.min() / divergences)
