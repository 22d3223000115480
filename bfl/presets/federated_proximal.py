"""Federated averaging with a proximal term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("federated-proximal", aliases=("fedprox",))
class FederatedProximal(Preset):
    """Federated averaging whose clients are held near what they have received.

    Source: Li et al. (2020), "Federated optimization in heterogeneous networks", Algorithm 2.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "objective": "elbo+proximal",
    }
