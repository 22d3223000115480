"""Federated averaging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("federated-averaging", aliases=("fedavg",))
class FederatedAveraging(Preset):
    """Averages of what the clients have, with their shares of the examples as weights.

    Source: McMahan et al. (2017), "Communication-efficient learning of deep networks from
    decentralized data", Algorithm 1.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "weighting": "train-size",
    }
