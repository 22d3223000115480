"""An ensemble of the round's models predicts as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from bfl.aggregation.client_models import ClientModels
from bfl.aggregation.ensemble import EnsembleMembers, Member
from bfl.evaluation.predictives.base import Arrays, Predictive, predictives

if TYPE_CHECKING:
    from bfl.aggregation.samplers import Sampler
    from bfl.aggregation.server import RoundContext
    from bfl.posteriors import Manifest


@predictives.register("ensemble")
class EnsemblePredictive(EnsembleMembers, Predictive):
    """The mean predictions of the ensemble that a round's clients make, besides the posterior's.

    Its metrics stand besides the posterior's as ``ensemble-NAME``. The checkpoint of a round gets
    the clients' models.

    Source: Chen and Chao (2021), FedBE, equation (4) and Fig. 3, in which federated
    averaging is watched by such an ensemble.
    """

    needs_models: ClassVar[bool] = True

    def keep(self, context: RoundContext) -> Arrays:
        """Return the clients' models."""
        return context.models.to_arrays()

    def models(
        self,
        kept: Arrays,
        *,
        sampler: Sampler,
        manifest: Manifest | None,
        seed: int,
        server_round: int,
    ) -> Iterator[Member] | None:
        """Return the members, the same that a refinement of the round has had."""
        found = ClientModels.from_arrays(kept, manifest)
        return self.members(found, sampler, seed, server_round)
