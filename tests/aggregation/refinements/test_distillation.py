"""Rates and collected models of a distillation, against what the paper says of them."""

from typing import Any

import numpy as np
import pytest

from bfl.aggregation.refinements import refinements
from bfl.aggregation.refinements.distillation import (
    Distillation,
    DistillationPlan,
    cyclical_rates,
    sharpen,
    swa_steps,
)
from bfl.configuration import resolve
from bfl.data.datasets.server_data import ServerData
from bfl.errors import ConfigurationError


def own(images: int, labelled: bool = True) -> ServerData:
    labels = np.zeros(images, np.int64)
    pixels = np.zeros((images, 2, 2, 1), np.uint8)
    return ServerData(pixels, labels if labelled else None, labels[:0])


def test_the_papers_distillation_has_53_models_and_its_codes_43() -> None:
    """10,000 images, batches of 128, 20 epochs; the notes count both."""
    steps = 1580
    assert swa_steps(steps, 250, 25).sum() == 53
    assert swa_steps(steps, 500, 25).sum() == 43
    plan = Distillation().plan(10_000, 10)
    np.testing.assert_array_equal(plan.collected, swa_steps(steps, 250, 25))
    assert np.flatnonzero(plan.collected)[0] == 274
    assert plan.rates.size == steps


def test_who_learns_labels_looks_at_no_single_model() -> None:
    """So nothing is refused that would hide the models, and none is held in memory."""
    from_ensemble, from_labels = Distillation(), Distillation(distillation_targets="labels")
    assert from_ensemble.needs_models
    assert not from_labels.needs_models
    assert from_ensemble.has() == {"refined-pool", "single-models"}
    assert from_labels.has() == {"refined-pool"}


def test_the_rate_falls_in_each_cycle_and_ends_at_the_lowest() -> None:
    rates = cyclical_rates(60, 1e-3, 4e-4, 25)
    np.testing.assert_allclose(rates[[24, 49]], 4e-4, rtol=1e-6)
    np.testing.assert_allclose(rates[:25], rates[25:50])
    assert (np.diff(rates[:25]) < 0).all()
    assert rates.max() < 1e-3
    np.testing.assert_allclose(np.diff(rates[:25]), -6e-4 / 25, rtol=1e-3)
    np.testing.assert_allclose(cyclical_rates(9, 1e-3, 1e-3, 4), 1e-3, rtol=1e-6)


def test_the_start_scales_with_the_steps() -> None:
    assert np.flatnonzero(swa_steps(640, 0.1582, 25))[0] == 124
    assert np.flatnonzero(swa_steps(640, 100, 25))[0] == 124
    assert swa_steps(640, 640, 25).sum() == 0


def test_segments_end_where_models_are_collected() -> None:
    collected = np.array([False, True, False, False, True, False])
    plan = DistillationPlan(2, 1, np.ones(6, np.float32), collected, 0.9, 0.0)
    assert plan.segments() == [(slice(0, 2), True), (slice(2, 5), True), (slice(5, 6), False)]
    whole = DistillationPlan(2, 1, np.ones(6, np.float32), np.zeros(6, bool), 0.9, 0.0)
    assert whole.segments() == [(slice(0, 6), False)]


def test_swa_that_collects_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no model would be collected"):
        Distillation().check(own(100))
    Distillation(distillation_optimizer="sgd").check(own(100))
    Distillation(swa_cycle=5).check(own(100))


def test_data_that_do_not_serve_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="set server-data"):
        Distillation().check(None)
    labels = Distillation(distillation_targets="labels")
    with pytest.raises(ConfigurationError, match="have none"):
        labels.check(own(10_000, labelled=False))
    labels.check(own(10_000))


def test_sharpening_is_the_papers_square() -> None:
    probability = np.random.default_rng(0).dirichlet(np.ones(5), 20)
    squares = probability**2 / (probability**2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(sharpen(probability), squares, rtol=1e-12)
    tiny = np.array([[1e-200, 3e-200, 0.0]])
    np.testing.assert_allclose(sharpen(tiny), [[0.1, 0.9, 0.0]])


def test_the_codes_loss_is_a_mean_over_classes_too() -> None:
    made = refinements.create("distillation", {"distillation-loss": "image-and-class"})
    assert isinstance(made, Distillation)
    assert made.plan(10_000, 10).loss_scale == 0.1
    assert Distillation().plan(10_000, 10).loss_scale == 1.0


FEDBE: dict[str, Any] = {"strategy": "fedbe", "inference": "deterministic"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"strategy": "fedavg", "refinement": "distillation"}, "server-data"),
        ({"client-draws": 2}, "draw from"),
        ({"distillation-targets": "labels"}, "server-labels"),
        (
            {"ensemble-samples": 0, "ensemble-average": False, "ensemble-clients": False},
            "ensemble-clients",
        ),
        ({"distillation-learning-rate": 1e-4}, "swa-lowest-rate"),
        ({"sampler": "pooled-posterior"}, "sampler"),
        ({"server-data": "cifar9"}, "did you mean 'cifar10'"),
        ({"dataset": "digits", "server-data": "digits"}, "server-data"),
        ({"strategy": "pvi", "inference": "flipout", "refinement": "distillation"}, "refinement"),
    ],
    ids=str,
)
def test_what_cannot_be_distilled_is_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        resolve({**FEDBE, **given})
