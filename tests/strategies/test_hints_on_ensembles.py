"""What is said of a run whose samples, or whose student, are not what one would expect."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from bfl.aggregation.samplers import GaussianSampler
from bfl.configuration import resolve
from strategies.application.preflight import method_warnings
from strategies.run_support import Warnings

FEDBE: dict[str, Any] = {"strategy": "fedbe", "inference": "deterministic"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, False),
        ({"weighting": "equal"}, True),
        ({"weighting": "equal", "sample-weights": "equal"}, False),
        ({"sample-weights": "equal"}, True),
        ({"weighting": "accuracy", "server-labels": True, "sampler": "dirichlet"}, True),
        ({"weighting": "equal", "ensemble-samples": 0}, False),
        ({"weighting": "equal", "distillation-targets": "labels", "server-labels": True}, False),
        ({"weighting": "equal", "sampler": "normalized-differences"}, False),
        # Around the previous model, whatever the weights: there is nothing to remedy.
        ({"sampler": "normalized-differences"}, False),
    ],
)
def test_samples_that_are_not_drawn_around_the_pool_are_told(
    values: dict[str, Any], said: bool
) -> None:
    found = method_warnings(resolve({**FEDBE, **values}))
    assert len(found) == said
    assert all("not sampled around the pooled one" in text for text in found)


def test_a_sampler_of_ones_own_may_weight_clients_in_another_way() -> None:
    configuration = resolve({**FEDBE, "weighting": "equal"})

    class ByOrder(GaussianSampler):
        sample_weights: Literal["size", "equal", "order"] = "order"  # type: ignore[assignment]

    assert method_warnings(configuration)
    assert not method_warnings(replace(configuration, sampler=ByOrder()))


def test_a_student_that_comes_away_from_its_targets_is_told_once() -> None:
    said: list[str] = []
    warnings = Warnings(said.append)
    warnings.warn_of_numbers(1, {"distillation-before": 1.5, "distillation-after": 1.25})
    warnings.warn_of_numbers(1, {"distillation-before": 0.12345, "distillation-after": 0.123451})
    warnings.warn_of_numbers(1, {"distillation-before": 20.0, "distillation-after": 20.1})
    assert not said
    for number in (2, 3):
        warnings.warn_of_numbers(number, {"distillation-before": 1.5, "distillation-after": 1451.0})
    (text,) = said
    assert text.startswith("round 2: the student has come away from its targets, 1451 nats")
    assert "distillation-learning-rate" in text
