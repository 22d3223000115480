"""Refinements: functions of a pooled round that give the posterior sent next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bfl.aggregation.server import RoundContext, UsesServer
from bfl.posteriors import Posterior
from bfl.registry import Component, Registry


@dataclass(frozen=True)
class Refined:
    """Result of a refinement: the next round's posterior, and what there is to report of it."""

    posterior: Posterior
    metrics: Mapping[str, float] = field(default_factory=dict)


class Refinement(Component, UsesServer, ABC):
    """Change that the server makes to a pooled posterior.

    It keeps nothing from round to round and draws by (seed, round) alone, so that a round that is
    interrupted gives the same result when it is made again.
    """

    active: ClassVar[bool] = True
    """False if the pooled posterior stays as it is."""

    @property
    def needs_models(self) -> bool:
        """True if it needs the models of all clients of a round at once, held in memory."""
        return False

    def has(self) -> frozenset[str]:
        """Return whether another posterior is sent than the pooled one, made of single models."""
        refined = {"refined-pool"} if self.needs_server or self.needs_models else set()
        return frozenset(refined | ({"single-models"} if self.needs_models else set()))

    def requires(self) -> frozenset[str]:
        """Return that the server has data of its own, if it is to use any."""
        return frozenset({"server-images"}) if self.needs_server else frozenset()

    @abstractmethod
    def refine(self, context: RoundContext) -> Refined:
        """Return the posterior that the next round begins with; NotFiniteError ends the round."""


BEFORE, AFTER = "distillation-before", "distillation-after"
"""The names of the mean cross-entropies of a student to its targets, in nats."""

refinements: Registry[Refinement] = Registry("refinement", "bfl.aggregation.refinements")


@refinements.register("none")
class NoRefinement(Refinement):
    """The pooled posterior as it is."""

    active: ClassVar[bool] = False
    needs_models: ClassVar[bool] = False

    def refine(self, context: RoundContext) -> Refined:
        """Return the pooled posterior."""
        return Refined(context.pooled)
