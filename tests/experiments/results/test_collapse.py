"""Warnings about a run's uncertainty: when, in words, and once."""

import numpy as np
import pytest

from bfl.experiments.results.collapse import CollapseWatch, collapse, error_auroc
from bfl.experiments.results.run_folder import FINAL_EVALUATION, RunFolder

HEALTHY = {"mean-epistemic": 0.01, "mean-aleatoric": 0.2, "fraction-at-scale-floor": 0.1}


@pytest.mark.parametrize(
    ("numbers", "samples", "collapsed"),
    [
        (HEALTHY, 5, False),
        (HEALTHY | {"mean-epistemic": 0.0}, 2, True),
        (HEALTHY | {"mean-epistemic": 0.0}, 1, False),  # one sample never has any
        (HEALTHY | {"mean-epistemic": 2.1e-3}, 5, False),
        (HEALTHY | {"mean-epistemic": 1.9e-3}, 5, True),
        (HEALTHY | {"fraction-at-scale-floor": 0.5}, 5, False),
        (HEALTHY | {"fraction-at-scale-floor": 0.51}, 1, True),
        ({"fraction-at-scale-floor": np.float64(0.97)}, 5, True),
        ({"accuracy": 0.5}, 20, False),  # what was not measured is not judged
    ],
)
def test_criterion(numbers, samples, collapsed):
    assert (collapse(numbers, samples) is not None) == collapsed


def test_a_run_is_warned_once_also_when_it_is_resumed(tmp_path):
    folder, said = RunFolder.create(tmp_path, "run", {}, {}), []
    collapsed = {**HEALTHY, "fraction-at-scale-floor": 0.9}
    watch = CollapseWatch(folder, said.append)
    watch.look(HEALTHY, 5, "round 1")
    assert (said, folder.warnings()) == ([], [])
    watch.look(collapsed, 5, "round 2")
    watch.look(collapsed, 5, "round 3")
    CollapseWatch(folder, said.append).look(collapsed, 5, "round 4")
    assert len(said) == len(folder.warnings()) == 1
    assert said[0].startswith("warning, round 2: ")
    assert folder.warnings()[0].startswith("round 2: ")


def test_a_run_given_more_rounds_is_warned_as_one_that_had_them_from_the_start(tmp_path):
    """The shorter run's final numbers are none of the longer one's."""
    collapsed = {**HEALTHY, "fraction-at-scale-floor": 0.9}
    folder, said = RunFolder.create(tmp_path, "run", {"rounds": 1}, {}), []
    CollapseWatch(folder, said.append).look(collapsed, 5, FINAL_EVALUATION)
    folder.reconfigure({**folder.config(), "rounds": 2})
    CollapseWatch(folder, said.append).look(collapsed, 5, "round 2")
    assert [text.partition(":")[0] for text in folder.warnings()] == ["round 2"]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("closing", "named"), [("none", True), ("bayesian-head", True), ("feature-density", False)]
)
def test_a_run_without_a_density_is_told_of_it(tmp_path, closing, named):
    folder, said = RunFolder.create(tmp_path, "run", {"closing": closing}, {}), []
    CollapseWatch(folder, said.append).look({"fraction-at-scale-floor": 1.0}, 5, "round 2")
    assert ('closing="bayesian-head' in said[0]) is named
    assert "feature-density" in said[0]


def test_a_run_that_cannot_be_closed_is_told_of_rules_alone(tmp_path):
    folder, said = RunFolder.create(tmp_path, "run", {"task": "regression"}, {}), []
    CollapseWatch(folder, said.append).look({"fraction-at-scale-floor": 1.0}, 5, "round 2")
    assert "closing" not in said[0]
    assert 'strategy="nwa"' in said[0]


def test_what_tells_errors_no_better_than_chance_is_of_no_use() -> None:
    rng = np.random.default_rng(0)
    wrong = np.arange(400) < 60
    blind, seeing = rng.random(400), rng.random(400) + 0.5 * wrong
    for epistemic, useless in ((blind, True), (seeing, False), (-seeing, True)):
        assert (collapse(HEALTHY | error_auroc(epistemic, wrong), 5) is not None) == useless
    found = error_auroc(seeing, wrong)
    pairs = (seeing[wrong][:, None] > seeing[~wrong]).mean()
    assert found["epistemic-error-auroc"] == pytest.approx(pairs)
    aurocs = [error_auroc(rng.random(400), wrong)["epistemic-error-auroc"] for _ in range(400)]
    assert np.std(aurocs) == pytest.approx(found["chance-deviation"], rel=0.15)
    assert error_auroc(blind, np.arange(400) < 4) == {}
