"""FedBE: a Bayesian model ensemble, distilled on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.presets.base import Preset, presets


@presets.register("federated-bayesian-ensemble", aliases=("fedbe",))
class FederatedBayesianEnsemble(Preset):
    """Federated averaging whose average learns from samples, itself and the clients' models.

    Ten models of a Gaussian over the clients' models, the average and the clients predict the
    server's unlabelled images; the average is distilled from their sharpened mean predictions with
    stochastic weight averaging, on augmented images. The images are held back from the clients
    unless ``server-data`` names others.

    Source: Chen and Chao (2021), "FedBE: Making Bayesian model ensemble applicable to federated
    learning", Algorithm 1 and section 5.1.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {
        "pooling": "naive-weighted-averaging",
        "weighting": "train-size",
        "refinement": "distillation",
        "sampler": "gaussian",
        "ensemble-samples": 10,
        "ensemble-average": True,
        "ensemble-clients": True,
        "distillation-optimizer": "swa",
        "student-augmentation": "crop-flip",
        "server-data": "held-back",
        "server-labels": False,
    }
