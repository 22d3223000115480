"""Configurations are picked by what the protocol says, and by no test image."""

import importlib
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

import bfl
from bfl.errors import ConfigurationError
from bfl.experiments.studies.claims import check_seeds
from bfl.experiments.studies.results import StudyResults
from bfl.experiments.studies.study import read_study
from bfl.experiments.studies.table import StudyTable

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(10, 20)
TRIED = ROOT / "configs" / "which-rule" / "digits-tried.toml"
TABLES = ("heart", "heart-va", "beijing")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("picks")


def made(script: ModuleType, best: str, left_out: str = "") -> StudyTable:
    """Return a table of runs of which only the closed ones' held-back images favour ``best``."""
    study = read_study(TRIED)
    runs = [run for run in study.runs if run.labels["setting"] != left_out]
    frame = pd.DataFrame([{**run.labels, "diverged": ""} for run in runs], [r.name for r in runs])
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


@pytest.mark.parametrize(
    ("name", "partitions", "beside", "lean"),
    [
        ("digits", slice(0, 4), None, False),
        ("digits-rivals", slice(1, 2), "digits-picked.toml", False),
        ("fashion-mnist-28", slice(0, 4), None, True),
        *[(n, slice(i, i + 1), None, False) for n, i in zip(TABLES, (4, 5, 4), strict=True)],
    ],
)
def test_a_comparison_is_what_the_command_writes_of_what_was_tried(
    script: ModuleType, name: str, partitions: slice, beside: str | None, lean: bool
) -> None:
    table = bfl.study(TRIED.with_name(f"{name}-tried.toml"))
    labels = [each["label"] for each in script.PARTITIONS[partitions]]
    other = beside and TRIED.with_name(beside)
    text = script.comparison(table, script.picks(table, SEEDS), labels, SEEDS, other, lean)
    path = TRIED.with_name(f"{name}-picked.toml")
    assert text == path.read_text("utf-8")
    check_seeds(read_study(path))  # ten seeds carry its claims
