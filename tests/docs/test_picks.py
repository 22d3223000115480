"""Configurations are picked by what the protocol says, and by no test image."""

import importlib
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from bfl.errors import ConfigurationError
from bfl.experiments.studies.claims import check_seeds
from bfl.experiments.studies.results import StudyResults
from bfl.experiments.studies.study import read_study
from bfl.experiments.studies.table import StudyTable

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(10, 20)
TRIED = ROOT / "configs" / "which-rule" / "digits-tried.toml"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("picks")


def made(script: ModuleType, best: str, left_out: str = "") -> StudyTable:
    """Return a table of runs of which only the closed ones' held-back images favour ``best``."""
    study = read_study(TRIED)
    runs = [run for run in study.runs if run.labels["setting"] != left_out]
    rows = {run.name: {**run.labels, "diverged": ""} for run in runs}
    frame = pd.DataFrame.from_dict(rows, orient="index")
    frame[script.METRIC] = frame["setting"].eq(best).map({True: 0.1, False: 0.2})
    curves = [
        (run, 20, name, 1 - value)
        for run, value in frame[script.METRIC].items()
        for name in (script.METRIC, "negative-log-likelihood")
    ]
    results = StudyResults(frame, pd.DataFrame(curves, columns=["run", "round", "metric", "value"]))
    return StudyTable(study, results, (), frame)


def test_the_least_nll_on_held_back_images_is_picked(script: ModuleType) -> None:
    table = made(script, "rate 0.005")
    picked = script.picks(table, SEEDS)
    assert picked.method.tolist()[:3] == ["FedAvg", "IVON", "WS"]
    assert picked.setting[0] == "rate 0.005"
    assert picked.NLL[0] == 0.1
    assert set(picked.tried) == {8}
    with pytest.raises(ConfigurationError, match="'FedAvg': 7"):
        script.picks(made(script, "", left_out="rate 0.1"), SEEDS)


def test_the_comparison_has_ten_other_seeds_that_carry_its_claims(
    script: ModuleType, tmp_path: Path
) -> None:
    table, path = made(script, "rate 0.005"), tmp_path / "digits-picked.toml"
    picked, labels = script.picks(table, SEEDS), [each["label"] for each in script.PARTITIONS]
    (tmp_path / "digits.toml").write_text(TRIED.with_name("digits.toml").read_text("utf-8"))
    for rivals, beside, chosen, tested in (
        (picked, None, labels[4:], 10),
        (picked, None, labels[:4], 14),
        (picked[1:], path, labels[1:2], 5),
    ):
        written = tmp_path / "rivals.toml" if beside else path
        written.write_text(
            script.comparison(table, rivals, chosen, SEEDS, beside), encoding="utf-8"
        )
        study = read_study(written)
        check_seeds(study)
        assert study.tested_claims() == tested
        assert len(study.runs) == 10 * len(chosen) * 5
    assert {run.values["seed"] for run in study.runs} == set(SEEDS)
