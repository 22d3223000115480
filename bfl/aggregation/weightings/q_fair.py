"""Weights by the clients' losses: those who are served badly count more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.aggregation.weightings.base import Array, ReportWeighting, weightings

LOSS = "train-negative-log-likelihood"
"""Name under which clients report it."""


@weightings.register("q-fair", aliases=("q-ffl", "q-fedavg"))
class QFair(ReportWeighting):
    """A client's examples times a power of its training loss, ω_k ∝ |D_k| F_k^q.

    F_k is the negative log-likelihood per example, in nats, of the client's last local epoch. With
    these weights the averaged steps are those down the gradient of
    Σ_k |D_k| F_k^{q+1} / (q + 1); q = 0 is ``train-size``. Losses below 0, as densities of numbers
    may have, are refused.

    Source: Li et al. (2020), "Fair resource allocation in federated learning", equation (2) and
    Algorithm 2. Chosen here: the loss while training in place of that before it, and the step to
    the weighted pool in place of the one by Lipschitz constants.
    """

    reads: ClassVar[tuple[str, ...]] = (LOSS,)

    fairness: float = Field(1.0, ge=0.0, le=10.0)
    """exponent q of a client's loss"""

    def gamma_of_reports(
        self, reports: Sequence[Mapping[str, float]], num_examples: Sequence[int]
    ) -> Array:
        """Return the numbers of examples times powers of the losses, (K,)."""
        losses = np.array([report[LOSS] for report in reports], np.float64)
        # Divided by the greatest, powers neither overflow nor vanish all together.
        relative = losses / losses.max() if losses.any() else np.ones(losses.size)
        return np.asarray(num_examples, np.float64) * relative**self.fairness
