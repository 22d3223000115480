"""No client may be much more certain than the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from bfl.aggregation.defences.base import Block, Defence, by_blocks, defences
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
        variances = by_blocks([p.variance for p in posteriors], self._raised)
        return [Posterior(p.mean, v, p.point) for p, v in zip(posteriors, variances, strict=True)]

    def _raised(self, block: Block) -> Block:
        ordered, count = np.sort(block, axis=0), len(block)
        # Halved before they are added, so that two large variances do not overflow.
        median = 0.5 * ordered[(count - 1) // 2] + 0.5 * ordered[count // 2]
        np.maximum(block, self.variance_floor * median, out=block)
        return block
