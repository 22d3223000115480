"""Federated mutual learning: FML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("federated-mutual-learning", aliases=("fml",))
class FederatedMutualLearning(Preset):
    """Federated averaging of memes that learn from personal models, and these from them.

    Source: Shen et al. (2020), "Federated mutual learning"; Yang et al. (2023), Eq. 2.5, and
    section 5 for the optimizer.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "weighting": "train-size",
        "personalization": "mutual-distillation",
        "optimizer": "stochastic-gradient-descent",
        "personal-optimizer": "stochastic-gradient-descent",
        "momentum": 0.9,
        "weight-decay": 5e-4,
        "learning-rate": 0.01,
        "personal-learning-rate": 0.01,
        "schedule": "constant",
    }
