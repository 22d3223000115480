"""The warning that epistemic uncertainty has collapsed: when, in words, and once."""

import numpy as np
import pytest

from bfl.experiments.results.collapse import CollapseWatch, collapse
from bfl.experiments.results.run_folder import FINAL_EVALUATION, RunFolder

HEALTHY = {"mean-epistemic": 0.01, "mean-aleatoric": 0.2, "fraction-at-scale-floor": 0.1}


@pytest.mark.parametrize(
    ("change", "samples", "words"),
    [
        ({}, 5, None),
        ({"mean-epistemic": 9e-11}, 5, "9.0e-11, at most 1/1,000 of the whole, 2.0e-01"),
        ({"mean-epistemic": 0.0}, 2, "0.0e+00"),
        ({"mean-epistemic": 0.0}, 1, None),  # one sample never has any
        ({"mean-epistemic": 2.1e-4}, 5, None),
        ({"mean-epistemic": 1.9e-4}, 5, "at most 1/1,000"),
        ({"fraction-at-scale-floor": 0.5}, 5, None),
        ({"fraction-at-scale-floor": 0.51}, 1, "51% of all standard deviations lie at scale-floor"),
    ],
)
def test_criterion(change, samples, words):
    found = collapse({**HEALTHY, **change}, samples)
    assert (found is None) == (words is None)
    if words:
        assert words in found
        assert "the epistemic uncertainty has collapsed" in found


def test_what_was_not_measured_is_not_judged():
    assert collapse({}, 5) is None
    assert collapse({"accuracy": 0.5}, 20) is None
    assert "97%" in collapse({"fraction-at-scale-floor": np.float64(0.97)}, 5)


def test_both_reasons_are_told():
    found = collapse({**HEALTHY, "mean-epistemic": 0.0, "fraction-at-scale-floor": 1.0}, 5)
    assert "1/1,000" in found
    assert "100%" in found


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
    assert said[0].startswith("warning, round 2: the epistemic uncertainty has collapsed")
    assert folder.warnings()[0].startswith("round 2: the epistemic")


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
