"""No variance outside of a range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from bfl.aggregation.defences.base import Defence, defences
from bfl.posteriors import Posterior


@defences.register("variance-clamp")
class VarianceClamp(Defence):
    """All clients' variances clamped to [e⁻ᶜ, eᶜ] before they are pooled. Means are as sent.

    Source: the published code of Ozer et al. (2022), which pools log-variances clamped to [−8, 8]
    with every rule but AALV.
    """

    variance_clamp: float = Field(
        8.0, gt=0.0, le=80.0, description="c, variances being clamped to [exp(-c), exp(c)]"
    )

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return the posteriors with variances in the range."""
        low, high = math.exp(-self.variance_clamp), math.exp(self.variance_clamp)
        return [Posterior(p.mean, np.clip(p.variance, low, high), p.point) for p in posteriors]
