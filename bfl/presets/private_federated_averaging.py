"""Federated averaging with differential privacy of its clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("private-federated-averaging", aliases=("dp-fedavg",))
class PrivateFederatedAveraging(Preset):
    """Averages of clipped updates, all of equal weight, to which the server adds Gaussian noise.

    Source: McMahan et al. (2018), "Learning differentially private recurrent language models",
    Algorithm 1, with a fixed denominator. Of Gaussian posteriors, means and logarithms of standard
    deviations are averaged; networks with normalisation have groups in place of batches, whose
    moving statistics would tell of a client's data.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "log-variance-averaging",
        "weighting": "equal",
        "outgoing": "clip+noise",
        "noise-at": "server",
        "round-retries": 0,
        "normalization": "group",
    }
