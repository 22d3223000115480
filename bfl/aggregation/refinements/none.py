"""No refinement: the next round begins with the pooled posterior."""

from __future__ import annotations

from bfl.aggregation.refinements.base import Refined, Refinement, refinements
from bfl.aggregation.server import RoundContext


@refinements.register("none")
class NoRefinement(Refinement):
    """The pooled posterior as it is."""

    def refine(self, context: RoundContext) -> Refined:
        """Return the pooled posterior."""
        return Refined(context.pooled)
