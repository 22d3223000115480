"""Federated averaging with Yogi on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("server-yogi", aliases=("fedyogi",))
class ServerYogi(Preset):
    """Federated averaging whose server makes the steps of Yogi.

    Source: Reddi et al. (2021), "Adaptive federated optimization", Algorithm 2.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "server-optimizer": "yogi",
    }
