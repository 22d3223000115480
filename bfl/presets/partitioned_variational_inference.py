"""Partitioned variational inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("partitioned-variational-inference", aliases=("pvi",))
class PartitionedVariationalInference(Preset):
    """Clients keep factors of the posterior; cavities are their priors, and changes are added.

    Chosen for networks, where factors of clients that are far from converged all claim the same
    precision: the changes are damped by 1 over the number of clients in the round. A floor under
    the variances would break the product of factors, so there is none. The posterior begins as the
    prior N(0, I), and a client's optimizer, until it has been pooled, as the network does: at the
    means of the prior all units of a layer would be the same.

    Source: Bui et al. (2018), "Partitioned variational inference", Algorithm 1; Ashman et al.
    (2022), "Partitioned variational inference: a framework for probabilistic federated learning".
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "factor-changes",
        "prior": "cavity",
        "prior-scale": 1.0,
        "start": "initial-network",
        "damping": 0.0,
        "scale-floor": 0.0,
    }
