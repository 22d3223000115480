"""SCAFFOLD: stochastic controlled averaging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("stochastic-controlled-averaging", aliases=("scaffold",))
class Scaffold(Preset):
    """Averages of clients whose steps are corrected by control variates, all of equal weight.

    Source: Karimireddy et al. (2020), "SCAFFOLD: Stochastic controlled averaging for federated
    learning", Algorithm 1; option II, plain steps.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "weighting": "equal",
        "correction": "scaffold",
        "optimizer": "stochastic-gradient-descent",
        "momentum": 0.0,
        "learning-rate": 0.01,
    }
