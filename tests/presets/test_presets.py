"""Every registered preset names components and keys that exist."""

import pytest

from bfl.aggregation.pooling import pooling_rules
from bfl.configuration import resolve
from bfl.learning.optimizers import optimizers
from bfl.learning.personalizations import personalizations
from bfl.learning.priors import priors
from bfl.presets import Preset, presets


@pytest.mark.parametrize("preset", presets.classes(), ids=lambda preset: preset.name)
def test_a_preset_is_described_and_sets_something(preset: type[Preset]) -> None:
    assert preset.values
    assert "Source:" in (preset.__doc__ or "")


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


@pytest.mark.parametrize("name", ["hbfl", "fml", "local"])
def test_a_resolved_preset_of_personal_models_resolves_to_itself(name: str) -> None:
    """Clients resolve the values that the server sends them."""
    configuration = resolve({"strategy": name})
    again = resolve(configuration.values)
    assert again == configuration


def test_mutual_learning_and_training_alone() -> None:
    mutual, alone = resolve({"strategy": "fml"}), resolve({"strategy": "local"})
    assert mutual.personalization.name == "mutual-distillation"
    assert mutual.optimizer == mutual.personal_optimizer == alone.personal_optimizer
    assert mutual.keys.learning_rate == 0.01
    assert alone.personalization.name == "alone"


def test_accuracy_based_averaging_and_personalization_layers() -> None:
    accuracy, layers = resolve({"strategy": "abavg"}), resolve({"strategy": "fedper"})
    assert (accuracy.pooling.name, accuracy.weighting.name) == (
        "naive-weighted-averaging",
        "accuracy",
    )
    assert accuracy.keys.server_data == "held-back"
    assert (layers.shared.name, layers.keys.judged_by) == ("body", "clients")
