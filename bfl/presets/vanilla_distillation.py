"""Vanilla knowledge distillation of the clients' ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("vanilla-distillation", aliases=("v-distillation",))
class VanillaDistillation(Preset):
    """Federated averaging whose average learns from the clients' models alone, without SWA.

    FedBE without samples, without the average among the teachers, without averaged weights.

    Source: Chen and Chao (2021), FedBE, section 5.1, "Baselines"; highly similar to Lin et al.
    (2020), "Ensemble distillation for robust model fusion in federated learning".
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "weighting": "train-size",
        "refinement": "distillation",
        "ensemble-samples": 0,
        "ensemble-average": False,
        "ensemble-clients": True,
        "distillation-optimizer": "sgd",
        "student-augmentation": "crop-flip",
        "server-data": "held-back",
        "server-labels": False,
    }
