"""Federated averaging with momentum on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("server-momentum", aliases=("fedavgm",))
class ServerMomentum(Preset):
    """Federated averaging whose server steps along a velocity that keeps 0.9 of itself.

    Source: Hsu et al. (2019), "Measuring the effects of non-identical data distribution for
    federated visual classification", section 4.3.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "server-optimizer": "momentum",
        "server-momentum": 0.9,
    }
