"""No client may be much more certain than the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from bfl.defences.base import Defence, defences
from bfl.posteriors import Posterior


@defences.register("variance-floor")
class VarianceFloor(Defence):
    """No variance below a share of the clients' median variance of that parameter.

    It takes from a client that claims an absurd certainty the power over rules that weight by the
    inverse variance: with a floor of 0.1 a client counts at most ten times the median one. Means
    are as sent.

    Source: none known; the median of a coordinate is that of Yin et al. (2018), "Byzantine-robust
    distributed learning", Definition 1.
    """

    variance_floor: float = Field(
        0.1, gt=0.0, le=1.0, description="least variance, as a share of the clients' median"
    )

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return the posteriors with no variance below the floor."""
        if not posteriors or not posteriors[0].size:
            return list(posteriors)
        median = np.median(np.stack([p.variance for p in posteriors]), axis=0)
        floor = (self.variance_floor * median).astype(posteriors[0].variance.dtype)
        return [Posterior(p.mean, np.maximum(p.variance, floor), p.point) for p in posteriors]
