"""Which lines are compared, what is said of ties, of other partitions, and of a study's scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_study import finished_study, scaled_study

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import DATA, RunFolder
from bfl.experiments.studies.comparisons import Pairing
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import StudyResults
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.run_result import result_of
from bfl.experiments.studies.scale import IN_FILE
from bfl.experiments.studies.table import study_table

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
AXES = """
title = "Small"
[base]
rounds = 1
clients = 3
[axes]
seed = [0, 1, 2]
data = [{ label = "digits", dataset = "digits" }, { label = "four", dataset = "resized:4:digits" }]
network = [{ label = "small", model = "mlp" }, { label = "large", model = "resnet8" }]
rate = [{ label = "low", learning-rate = 0.1 }, { label = "high", learning-rate = 0.2 }]
[[columns]]
metric = "accuracy"
"""


def test_other_test_images_are_no_pairs(tmp_path: Path) -> None:
    finished_study(tmp_path, {"A": [0.5, 0.6, 0.7], "B": [0.4, 0.5, 0.1]})
    folder = StudyFolder(tmp_path / "study")
    for seed, (one, other) in enumerate((("x", "y"), ("x", "y"), ("x", "x"))):
        for name, digest in (("a", one), ("b", other)):
            data = RunFolder(folder.runs / f"{name}_seed-{seed}").path / DATA
            data.write_text(json.dumps({"train": "z", "test": digest}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="test images or labels"):
        study_table(folder, study_in(folder))
    study = study_in(folder)
    results = [RunFolder(folder.runs / f"{name}_seed-{seed}") for seed in range(3) for name in "ab"]
    finished = {run.path.name: result_of(run, run.path.name) for run in results}
    pairing = Pairing(StudyResults(finished, {}, {}), study, lambda _: True)
    one, other = study.study.cells()
    assert len(pairing.both(one, other, study.study.columns[0])) == 1


def test_a_reduction_that_stands_in_the_file_is_said(tmp_path: Path) -> None:
    plain = finished_study(tmp_path / "plain", {"A": [0.5], "B": [0.4]})
    assert plain.scale == IN_FILE
    text = AXES.replace("rounds = 1", "rounds = 1\ntrain-examples = 500\ntest-examples = 0.5")
    scaled = scaled_study(tmp_path / "less", text=text, published=None)
    assert scaled.said == f"{IN_FILE}, train-examples 500, test-examples 0.5"
    assert resolve(scaled.runs[0].values, check_data=False).keys.train_examples == 500
    smaller = scaled_study(tmp_path / "least", "seeds=1", text=text, published=None)
    assert smaller.said == "scaled down: seeds 3 → 1"
