"""Presets have the values of their papers, whatever they leave to defaults."""

from typing import Any

import pytest

from bfl.configuration import resolve

SGD = {"momentum": 0.9, "weight-decay": 5e-4}
PAPERS: dict[str, dict[str, Any]] = {
    # Of the prior N(0, I); changes are damped by 1 over the number of clients in a round.
    "pvi": {
        "prior": "cavity",
        "prior-scale": 1.0,
        "start": "initial-network",
        "scale-floor": 0.0,
        "pooling": "factor-changes",
        "damping": 0.0,
    },
    # Yang et al. (2023), section 5, and Eqs. 3.12, 4.1, 4.2; it evaluates a network of means.
    "hbfl": SGD
    | {
        "pooling": "log-linear-pool",
        "weighting": "train-size",
        "broadcast": "mean",
        "start": "mean",
        "prior": "flat",
        "temperature": 1e-4,
        "evaluate-at": "mean",
        "optimizer": "adam",
        "learning-rate": 1e-3,
        "personalization": "distillation",
        "personal-learning-rate": 0.01,
        "personal-optimizer": "stochastic-gradient-descent",
        "schedule": "constant",
    },
    # Chen and Chao (2021), Algorithm 1 and section 5.1; of the clients' networks it says nothing.
    "fedbe": {
        "ensemble-samples": 10,
        "ensemble-average": True,
        "ensemble-clients": True,
        "distillation-targets": "ensemble",
        "distillation-epochs": 20,
        "distillation-batch-size": 128,
        "distillation-optimizer": "swa",
        "distillation-learning-rate": 1e-3,
        "swa-lowest-rate": 4e-4,
        "swa-cycle": 25,
        # 250 of the 1,580 steps that 20 epochs of the paper's 10,000 images are.
        "swa-start": pytest.approx(250 / 1580, abs=5e-5),
        "refinement": "distillation",
        "sampler": "gaussian",
        "sample-scale": 1.0,
        "sample-weights": "size",
        "student-augmentation": "crop-flip",
        "server-data": "held-back",
        "server-labels": False,
        "pooling": "naive-weighted-averaging",
        "weighting": "train-size",
        "inference": "flipout",
        "optimizer": "adam",
    },
    # Section 5.1: 200 local epochs, and the clients' models together at the end.
    "one-ensemble": {
        "predictive": "ensemble",
        "ensemble-samples": 0,
        "ensemble-average": False,
        "ensemble-clients": True,
        "rounds": 1,
        "local-epochs": 200,
        "refinement": "none",
        "weighting": "train-size",
    },
}


@pytest.mark.parametrize("strategy", PAPERS)
def test_a_preset_is_that_of_its_paper(strategy: str) -> None:
    values = resolve({"strategy": strategy}).values
    assert {key: values[key] for key in PAPERS[strategy]} == PAPERS[strategy]
