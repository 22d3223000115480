"""Values that stand out are moved to where the others end."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from bfl.aggregation.defences.base import Block, Defence, by_blocks, defences
from bfl.posteriors.posterior import VECTORS, Posterior


@defences.register("winsorization", aliases=("winsorisation", "trimming"))
class Winsorization(Defence):
    """The t least and t greatest values of each coordinate are moved to the nearest of the rest.

    t = ⌈hostile-fraction · K⌉, at most (K − 1) / 2, where all values become the median. With at
    most t hostile clients every mean, variance and point value that reaches the rule lies between
    those of honest clients, whatever was sent; so does what any rule makes of them that stays
    between its inputs. It is the trimmed mean of Yin et al. with the trimmed values moved instead
    of dropped, so that each client keeps its weight and the rule need not know.

    Source: Yin et al. (2018), "Byzantine-robust distributed learning", Definition 2; Dixon and
    Tukey (1968) for moving in place of dropping.
    """

    hostile_fraction: float = Field(
        0.2, ge=0.0, le=0.5, description="share of the clients that may be hostile"
    )

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return the posteriors with each coordinate's extremes moved inwards."""
        count = len(posteriors)
        moved = min(math.ceil(self.hostile_fraction * count - 1e-9), (count - 1) // 2)
        if moved <= 0:
            return list(posteriors)

        def moved_inwards(block: Block) -> Block:
            ordered = np.sort(block, axis=0)
            return np.clip(block, ordered[moved], ordered[-1 - moved], out=block)

        vectors = [
            by_blocks([getattr(p, name) for p in posteriors], moved_inwards) for name in VECTORS
        ]
        return [Posterior(*parts) for parts in zip(*vectors, strict=True)]
