"""Weights that follow from the numbers of training examples: equal, and by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bfl.aggregation.weightings.base import Array, Posteriors, Weighting, weightings
from bfl.posteriors.posterior import Posterior


@weightings.register("train-size", aliases=("fedavg",))
class TrainSize(Weighting):
    """A client's share of the training examples, ω_k = |D_k| / |D|.

    Source: Fischer et al. (2024), section 2.6.2, equation (19), after McMahan et al. (2017).
    """

    counts_only: ClassVar[bool] = True

    def gamma(
        self, posteriors: Posteriors, num_examples: Sequence[int], previous: Posterior | None
    ) -> Array:
        """Return the numbers of examples (K,)."""
        return np.asarray(num_examples, np.float64)


@weightings.register("equal")
class Equal(Weighting):
    """The same weight for every client, ω_k = 1/K.

    Source: Fischer et al. (2024), section 2.6.1, equation (18).
    """

    counts_only: ClassVar[bool] = True

    def has(self) -> frozenset[str]:
        """Return that all weights are equal, as well."""
        return super().has() | {"uniform-weights"}

    def gamma(
        self, posteriors: Posteriors, num_examples: Sequence[int], previous: Posterior | None
    ) -> Array:
        """Return ones (K,)."""
        return np.ones(len(num_examples))
