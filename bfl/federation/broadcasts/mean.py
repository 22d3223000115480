"""Clients are sent the global posterior's mean, and no variance."""

from __future__ import annotations

from typing import ClassVar

from bfl.federation.broadcasts.base import Broadcast, broadcasts


@broadcasts.register("mean")
class MeanBroadcast(Broadcast):
    """The global posterior's mean and point values, and no variances.

    What clients do not get they take from their own side, as ``start`` = "mean" does: whatever
    needs the received variances, such as a prior made of them, does not go with it.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem" (HBFL), Algorithm 1: clients fork the mean.
    """

    vectors: ClassVar[tuple[str, ...]] = ("mean", "point")

    def requires(self) -> frozenset[str]:
        """Return that there are Gaussians, whose mean is not all that there is."""
        return frozenset({"gaussian"})
