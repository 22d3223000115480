"""Weights by the size of the training data."""

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
