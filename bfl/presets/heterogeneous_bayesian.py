"""Heterogeneous Bayesian federated learning: HBFL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("heterogeneous-bayesian", aliases=("hbfl",))
class HeterogeneousBayesian(Preset):
    """A log-linear pool of cold posteriors whose mean alone is sent to the clients.

    A client's copy of the global model, the meme, is a Bayesian network: it begins at the received
    mean with fresh variances and is fitted to the likelihood to the power 1/T, with no prior
    (``prior`` = "flat"). Beside it a client trains a personal model of any architecture, which
    learns from the meme and which the meme does not see: ``personalization`` = "none" leaves it out
    and changes nothing of the global model.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem", Algorithm 1, Eqs. 3.12, 4.1 and 4.2, section
    5.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "log-linear-pool",
        "weighting": "train-size",
        "broadcast": "mean",
        "start": "mean",
        "prior": "flat",
        "temperature": 1e-4,
        "evaluate-at": "mean",
        "optimizer": "adam",
        "weight-decay": 5e-4,
        "learning-rate": 1e-3,
        "personalization": "distillation",
        "personal-optimizer": "stochastic-gradient-descent",
        "momentum": 0.9,
        "personal-learning-rate": 0.01,
        "schedule": "constant",
    }
