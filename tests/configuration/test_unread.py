"""Settings that nothing reads are mentioned, and those that something reads are not."""

from typing import Any

import pytest
from choosing import going_with, parts_of_all_keys, word_of

from bfl.configuration import resolve, unread_settings
from bfl.configuration.kinds import Kind


def unread(**values: Any) -> list[str]:
    given = {key.replace("_", "-"): value for key, value in values.items()}
    return unread_settings(resolve(given), given)


def test_a_setting_that_no_chosen_part_reads_is_mentioned() -> None:
    (said,) = unread(alpha=0.5, partition="iid", seed=3)
    assert said == "alpha is given, and nothing in this run reads it: partition dirichlet would"
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
    ],
)
def test_a_key_that_is_switched_off_is_mentioned(values: dict[str, Any], word: str) -> None:
    (said,) = unread(**values)
    assert word in said


def test_what_is_read_is_not_mentioned() -> None:
    assert unread(partition="dirichlet", alpha=0.3, calibration_bins=10, rounds=3) == []
    assert unread(attack="noise", attackers=1, noise_scale=2.0) == []
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
def test_every_setting_is_read_by_its_part(kind: Kind, name: str, key: str) -> None:
    word = word_of(kind, name)
    configuration = resolve({**going_with(kind.key, word), kind.key: word})
    assert unread_settings(configuration, [key]) == []
