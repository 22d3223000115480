"""Accuracy-based averaging: ABAVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("accuracy-based-averaging", aliases=("abavg",))
class AccuracyBasedAveraging(Preset):
    """Averages weighted by each client model's accuracy on images of the server's own.

    These are held back from the clients, unless ``server-data`` names others.

    Source: Xiao et al. (2021), "A novel server-side aggregation strategy for federated learning in
    non-IID situations"; compared with in Yang et al. (2023), section 5, Fig. 3.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "weighting": "accuracy",
        "server-data": "held-back",
    }
