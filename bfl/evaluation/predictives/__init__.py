"""Predictives: the models that predict besides the global posterior when a round is evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from bfl.aggregation.ensemble import EnsembleMembers, Member
from bfl.aggregation.samplers import ClientModels
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from bfl.aggregation.samplers import Sampler
    from bfl.aggregation.server import RoundContext
    from bfl.posteriors import Manifest

Arrays = Mapping[str, npt.NDArray[Any]]


class Predictive(Component, ABC):
    """Models that predict, besides the global posterior, when a round is evaluated.

    What it keeps of a round goes into the round's checkpoint, so that a run that is resumed
    evaluates the same models.

    Attributes:
        needs_models: Whether it needs the models of all clients of a round at once.
    """

    needs_models: ClassVar[bool] = False

    active: ClassVar[bool] = True
    """False if nothing predicts besides the posterior, so that it asks for no network."""

    def has(self) -> frozenset[str]:
        """Return whether the server has clients' models evaluated, one by one and whole."""
        return frozenset({"evaluated-ensemble", "single-models"} if self.needs_models else ())

    def keep(self, context: RoundContext) -> Arrays:
        """Return what it needs of a round, arrays by name."""
        return {}

    @abstractmethod
    def models(
        self,
        kept: Arrays,
        *,
        sampler: Sampler,
        manifest: Manifest | None,
        seed: int,
        server_round: int,
    ) -> Iterator[Member] | None:
        """Return the models whose mean predictions are evaluated; None for none but the posterior.

        Args:
            kept: What ``keep`` has returned for the round.
            server_round: The round, from 1.
        """


predictives: Registry[Predictive] = Registry("predictive", "bfl.evaluation.predictives")


@predictives.register("posterior")
class PosteriorPredictive(Predictive):
    """The global posterior, by Monte Carlo.

    Source: Fischer et al. (2024), equation (7).
    """

    active: ClassVar[bool] = False

    def models(self, kept: Arrays, **of_the_round: Any) -> None:
        """Return None."""
        return


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
