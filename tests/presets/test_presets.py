"""Every registered preset names components and keys that exist."""

import pytest

from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.refinements import refinements
from bfl.aggregation.samplers import samplers
from bfl.configuration import resolve
from bfl.evaluation.predictives import predictives
from bfl.learning.optimizers import optimizers
from bfl.learning.personalizations import personalizations
from bfl.learning.priors import priors


def test_partitioned_variational_inference_begins_with_the_prior_and_networks_as_they_are() -> None:
    configuration = resolve({"strategy": "pvi"})
    assert configuration.prior == priors.create("cavity", {"prior-scale": 1.0})
    assert configuration.start.name == "initial-network"
    assert configuration.keys.scale_floor == 0
    # 1 over the number of clients in a round.
    assert configuration.pooling == pooling_rules.create("factor-changes", {"damping": 0.0})


def test_heterogeneous_bayesian_is_that_of_the_paper() -> None:
    """Yang et al. (2023), section 5, and Eqs. 3.12, 4.1, 4.2."""
    configuration = resolve({"strategy": "hbfl"})
    assert configuration.pooling.name == "log-linear-pool"
    assert configuration.weighting.name == "train-size"
    assert configuration.broadcast.name == configuration.start.name == "mean"
    assert configuration.prior.name == "flat"
    assert configuration.keys.temperature == 1e-4
    assert (
        configuration.keys.evaluate_at == "mean"
    )  # "the global model" is a "conventional" network
    assert configuration.optimizer == optimizers.create("adam", {"weight-decay": 5e-4})
    assert configuration.keys.learning_rate == 1e-3
    assert configuration.personalization == personalizations.create(
        "distillation", {"personal-learning-rate": 0.01, "personal-label-share": 0.5}
    )
    descent = {"momentum": 0.9, "weight-decay": 5e-4}
    assert configuration.personal_optimizer == optimizers.create("sgd", descent)
    assert configuration.schedule.name == "constant"


def test_federated_bayesian_ensemble_is_that_of_the_paper() -> None:
    """Chen and Chao (2021), Algorithm 1 and section 5.1."""
    configuration = resolve({"strategy": "fedbe"})
    settings = {
        "ensemble-samples": 10,
        "ensemble-average": True,
        "ensemble-clients": True,
        "distillation-targets": "ensemble",
        "sharpening": 2.0,
        "distillation-epochs": 20,
        "distillation-batch-size": 128,
        "distillation-optimizer": "swa",
        "distillation-learning-rate": 1e-3,
        "swa-lowest-rate": 4e-4,
        "swa-cycle": 25,
    }
    assert {key: configuration.values[key] for key in settings} == settings
    assert configuration.refinement == refinements.create("distillation", settings)
    gaussian = samplers.create("gaussian", {"sample-scale": 1.0, "sample-weights": "size"})
    assert configuration.sampler == gaussian
    # 250 of the 1,580 steps that 20 epochs of the paper's 10,000 images are.
    assert configuration.values["swa-start"] == pytest.approx(250 / 1580, abs=5e-5)
    assert configuration.student_augmentation.name == "crop-flip"
    keys = configuration.keys
    assert (keys.server_data, keys.server_labels) == ("held-back", False)
    assert configuration.pooling.name == "naive-weighted-averaging"
    assert configuration.weighting.name == "train-size"


def test_a_one_round_ensemble_is_that_of_the_paper() -> None:
    """Section 5.1: 200 local epochs, and the clients' models together at the end."""
    configuration = resolve({"strategy": "one-ensemble"})
    clients_alone = {"ensemble-samples": 0, "ensemble-average": False, "ensemble-clients": True}
    assert configuration.predictive == predictives.create("ensemble", clients_alone)
    assert (configuration.keys.rounds, configuration.keys.local_epochs) == (1, 200)
    assert configuration.refinement.name == "none"
    assert configuration.weighting.name == "train-size"
