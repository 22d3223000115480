"""Weights by the divergence from the previous global posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bfl.aggregation.weightings.base import Array, Posteriors, Weighting, inverse, weightings
from bfl.posteriors.divergence import divergence
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
        """Return γ up to a common factor, (K,).

        Raises:
            ValueError: There is no previous posterior.
        """
        if previous is None:
            raise ValueError(f"{self.name} needs the previous global posterior; there is none")
        results = [
            divergence(previous.mean, previous.variance, posterior.mean, posterior.variance)
            for posterior in posteriors
        ]
        return inverse(np.array([max(result) for result in results]))
