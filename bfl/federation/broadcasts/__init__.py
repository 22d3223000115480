"""Broadcasts: vectors of the global posterior that the clients of a round are sent."""

from __future__ import annotations

from typing import ClassVar

from bfl.posteriors.posterior import VECTORS
from bfl.registry import Component, Registry


class Broadcast(Component):
    """Says what of the global posterior the clients of a round are sent.

    Attributes:
        vectors: The names of the vectors that are sent. Clients send all of theirs back.
    """

    vectors: ClassVar[tuple[str, ...]] = VECTORS

    def has(self) -> frozenset[str]:
        """Return whether clients are sent variances."""
        return frozenset({"sent-variances"}) if "variance" in self.vectors else frozenset()


broadcasts: Registry[Broadcast] = Registry("broadcast", "bfl.federation.broadcasts")


@broadcasts.register("mean")
class MeanBroadcast(Broadcast):
    """The global posterior's mean and point values, and no variances.

    What clients do not get they take from their own side, as ``start`` = "mean" does: whatever
    needs the received variances, such as a prior made of them, does not go with it.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem" (HBFL), Algorithm 1: clients fork the mean.
    """

    vectors: ClassVar[tuple[str, ...]] = ("mean", "point")
    always_requires: ClassVar[frozenset[str]] = frozenset({"gaussian"})


@broadcasts.register("posterior")
class PosteriorBroadcast(Broadcast):
    """The whole global posterior.

    Source: Fischer et al. (2024), Algorithm 1.
    """
