"""N(0, prior-scale² I), the same in every round."""

from __future__ import annotations

from pydantic import Field

from bfl.federation.parts import Arrays
from bfl.learning.priors.base import NormalPrior, Prior, priors
from bfl.posteriors import Posterior


@priors.register("fixed")
class FixedPrior(Prior):
    """N(0, prior-scale² I), the same in every round.

    Source: Fischer et al. (2024), sections 2.4 and 3.3: p(θ) = N(0, 100 I), a scale of 10.
    """

    prior_scale: float = Field(10.0, ge=1e-9, le=1e6, description="standard deviation of the prior")

    def density(self, received: Posterior, state: Arrays) -> NormalPrior:
        """Return 0 and ``prior_scale``."""
        return NormalPrior(0.0, self.prior_scale)
