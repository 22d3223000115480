"""One round of training, and the ensemble of its models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("one-round-ensemble", aliases=("one-ensemble", "1-ensemble"))
class OneRoundEnsemble(Preset):
    """Clients train once, for long, and their models predict together.

    The ensemble's numbers are ``ensemble-accuracy`` and so on; those without the prefix are the
    average's. The paper has 200 local epochs in section 5.1 and tunes them from 10 to 200 in
    section B.1: ``local-epochs``.

    Source: Chen and Chao (2021), FedBE, section 5.1, "Baselines" (1-Ensemble), and Table 8.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "weighting": "train-size",
        "predictive": "ensemble",
        "ensemble-samples": 0,
        "ensemble-average": False,
        "ensemble-clients": True,
        "rounds": 1,
        "local-epochs": 200,
    }
