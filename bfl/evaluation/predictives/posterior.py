"""The global posterior alone predicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bfl.aggregation.ensemble import Member
from bfl.evaluation.predictives.base import Arrays, Predictive, predictives

if TYPE_CHECKING:
    from bfl.aggregation.samplers import Sampler
    from bfl.posteriors import Manifest


@predictives.register("posterior")
class PosteriorPredictive(Predictive):
    """The global posterior, by Monte Carlo.

    Source: Fischer et al. (2024), equation (7).
    """

    @property
    def idle(self) -> bool:
        """True."""
        return True

    def models(
        self,
        kept: Arrays,
        *,
        sampler: Sampler,
        manifest: Manifest | None,
        seed: int,
        server_round: int,
    ) -> Iterator[Member] | None:
        """Return None."""
        return None
