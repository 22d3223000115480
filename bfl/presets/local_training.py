"""Training alone: what a federation has to be better than."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("local-training", aliases=("local",))
class LocalTraining(Preset):
    """Each client trains a model of its own on its own data, and the global one is not trained.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem", Table 4, "Independent"; section 5 for the optimizer.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "personalization": "alone",
        "personal-optimizer": "stochastic-gradient-descent",
        "momentum": 0.9,
        "weight-decay": 5e-4,
        "personal-learning-rate": 0.01,
    }
