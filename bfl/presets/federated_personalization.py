"""Federated averaging of all layers but the last: FedPer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("federated-personalization", aliases=("fedper",))
class FederatedPersonalization(Preset):
    """Averages of the layers that clients share; the last one is each client's own.

    Source: Arivazhagan et al. (2019), "Federated learning with personalization layers", Algorithms
    1 and 2, with one personalization layer.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "weighting": "train-size",
        "shared": "body",
        "judged-by": "clients",
    }
