"""Settings that nothing reads are mentioned, and those that something reads are not."""

from typing import Any

import pytest
from choosing import going_with, parts_of_all_keys, word_of

from bfl.configuration import resolve, unread_settings
from bfl.configuration.component_slots import ComponentSlot

FEDAVG: dict[str, Any] = {"strategy": "fedavg", "inference": "deterministic"}
FEDBE: dict[str, Any] = {"strategy": "fedbe", "inference": "deterministic"}


def unread(**values: Any) -> list[str]:
    given = {key.replace("_", "-"): value for key, value in values.items()}
    return unread_settings(resolve(given), given)


def test_a_setting_that_no_chosen_part_reads_is_mentioned() -> None:
    (said,) = unread(alpha=0.5, partition="iid", seed=3)
    assert said == "alpha is given, and nothing in this run reads it: partition dirichlet would"
    for partition in ("column:site", "shards", "step"):
        (said,) = unread(alpha=0.5, partition=partition)
        assert said.startswith("alpha ")
    (said,) = unread(population_size=50)
    assert "pooling population-pooling would" in said


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"attackers": 2}, "attack is 'none'"),
        (
            {"batch_size": 8, "example_privacy": "dp-sgd", "round_retries": 0, "model": "mlp"},
            "example-privacy is 'differentially-private-sgd'",
        ),
        ({"pretrain_patience": 3}, "pretrain-examples is 0"),
        ({"evaluate_every": 0, "evaluate_mc_samples": 2}, "evaluate-every is 0"),
        ({"lr_decay": 0.0, "lr_silent_rounds": 3}, "lr-decay is 0"),
        ({"personal_inference": "flipout"}, "personalization is 'none'"),
        ({"personal_optimizer": "sgd"}, "personalization is 'none'"),
        ({"personal_prior": "flat"}, "personalization is 'none'"),
        ({"server_labels": False}, "server-data is ''"),
        ({"workload": "uniform", "local_epochs": 3}, "workload is 'uniform'"),
        ({**FEDAVG, "prior": "flat"}, "which has no variances"),
        ({**FEDAVG, "prior_scale": 3.0}, "which has no variances"),
        ({**FEDAVG, "inference": "mc-dropout", "scale_floor": 0.0}, "which has no variances"),
        ({"server_evaluates": False, "evaluate_every": 3}, "server-evaluates is false"),
        ({"server_evaluates": False, "evaluate_mc_samples": 3}, "server-evaluates is false"),
        ({"server_evaluates": False, "test_examples": 50.0}, "server-evaluates is false"),
        ({"server_evaluates": False, "calibration_bins": 7}, "server-evaluates is false"),
        ({"strategy": "fedper", "evaluated_by": "clients", "mc_samples": 9}, "shared is 'body'"),
        ({"evaluate_at": "mean", "mc_samples": 9}, "evaluate-at is 'mean'"),
        ({"evaluate_at": "mean", "evaluate_mc_samples": 9}, "evaluate-at is 'mean'"),
        ({"strategy": "local", "learning_rate": 0.1}, "rate is personal-learning-rate"),
        ({**FEDBE, "distillation_optimizer": "sgd", "swa_start": 9.0}, "distillation-optimizer"),
        (
            {**FEDBE, "server_labels": True, "distillation_targets": "labels", "sharpening": 3.0},
            "distillation-targets is 'labels'",
        ),
        ({**FEDBE, "ensemble_clients": False, "client_draws": 2}, "ensemble-clients is false"),
        (
            {**FEDBE, "ensemble_samples": 0, "member_statistics": "averaged"},
            "ensemble-samples is 0",
        ),
        ({**FEDBE, "ensemble_samples": 0, "sampler": "dirichlet"}, "no member of an ensemble"),
        (
            {**FEDBE, "server_labels": True, "distillation_targets": "labels"}
            | {"sampler": "dirichlet"},
            "no member of an ensemble is a sample",
        ),
        ({"strategy": "fedavg", "inference": "deterministic", "sample_scale": 0.5}, "no member"),
        ({"student_augmentation": "crop-flip"}, "refinement is 'none'"),
    ],
)
def test_a_key_that_is_switched_off_is_mentioned(values: dict[str, Any], word: str) -> None:
    (said,) = unread(**values)
    assert word in said


def test_what_is_read_is_not_mentioned() -> None:
    assert unread(partition="dirichlet", alpha=0.3, calibration_bins=10, rounds=3) == []
    assert unread(attack="noise", attackers=1, noise_scale=2.0) == []
    # By `bfl predict`, which has the run's samples where nothing else is said.
    assert unread(server_evaluates=False, mc_samples=7) == []
    clients = {"server_evaluates": False, "evaluated_by": "clients"}
    assert unread(**clients, evaluate_every=3, evaluate_mc_samples=2, test_examples=90.0) == []
    assert unread(evaluated_by="clients", evaluate_every=0, evaluate_mc_samples=2) == []
    # Read by an ensemble that is judged, whatever a student learns.
    labels = {"server_labels": True, "distillation_targets": "labels", "predictive": "ensemble"}
    assert unread(**FEDBE, **labels, ensemble_samples=3) == []
    images = {"server_data": "held-back", "evaluate_mc_samples": 7}
    assert unread(**images, evaluate_at="mean") == []
    assert unread(strategy="local", learning_rate=0.1, pretrain_examples=0.1) == []
    # The whole configuration of a run, as a run's folder has it.
    values = resolve({"partition": "shards"}).values
    assert unread_settings(resolve(values), values) == []


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        pytest.param(kind, component.name, key, id=f"{kind.key}-{component.name}-{key}")
        for kind, component in parts_of_all_keys()
        for key in component.setting_keys()
        if key != "depth"
    ],
)
def test_every_setting_is_read_by_its_part(kind: ComponentSlot, name: str, key: str) -> None:
    word = word_of(kind, name)
    sampled = {"predictive": "ensemble"} if kind.key == "sampler" else {}
    configuration = resolve({**going_with(kind.key, word), kind.key: word, **sampled})
    assert unread_settings(configuration, [key]) == []


def test_the_prior_of_personal_models_is_read_where_they_are_gaussian() -> None:
    personal = {"personalization": "mutual-distillation", "personal_inference": "flipout"}
    values = {**FEDAVG, **personal, "evaluated_by": "clients", "prior_scale": 0.3}
    assert not [text for text in unread(**values) if text.startswith("prior-scale")]
    values["personal_inference"] = "deterministic"
    assert [text for text in unread(**values) if text.startswith("prior-scale")]
