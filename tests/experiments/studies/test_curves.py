"""Numbers that a study takes from a run's rounds: the best one, how soon, what pooling did."""

import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from small_study import STUDY, scaled_study

from bfl.configuration import resolve
from bfl.evaluation.regression import ERROR
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.columns import Column, number_of_curves
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import OpenedStudy
from bfl.experiments.studies.pages import by_client, comma_separated, markdown
from bfl.experiments.studies.run_result import parse_result, result_of
from bfl.experiments.studies.table import StudyTable, study_table

ROUNDS = (
    {"round": 2, "accuracy": 0.3, "negative-log-likelihood": 2.0, "log-precision-spread": 0.1}
    | {ERROR: 4.0, "ensemble-accuracy": 0.4},
    {"round": 4, "accuracy": 0.6, "negative-log-likelihood": 1.5, "log-precision-spread": 0.3}
    | {ERROR: 3.0},
    {
        "round": 6,
        "accuracy": 0.5,
        "negative-log-likelihood": math.nan,
        "expected-calibration-error": math.nan,
    },
)
COLUMNS = """
[[columns]]
metric = "best-accuracy"
scale = 100.0
decimals = 1

[[columns]]
metric = "rounds-to-accuracy-0.5"
decimals = 1

[[columns]]
metric = "mean-distance-from-average"
decimals = 4
"""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("best-accuracy", 0.6),
        ("best-negative-log-likelihood", 1.5),
        ("best-brier-score", None),
        ("best-expected-calibration-error", math.nan),
        (f"best-{ERROR}", 3.0),
        (f"rounds-to-{ERROR}-3.5", 4),
        (f"{ERROR}-at-round-2", 4.0),
        ("accuracy-at-round-4", 0.6),
        ("ensemble-accuracy-at-round-2", 0.4),
        ("ensemble-accuracy-at-round-4", None),
        ("accuracy-at-round-7", None),
        ("rounds-to-accuracy-0.3", 2),
        ("rounds-to-accuracy-0.31", 4),
        ("rounds-to-accuracy-0.61", math.inf),
        ("rounds-to-negative-log-likelihood-1.9", 4),
        ("rounds-to-brier-score-0.5", None),
        ("mean-log-precision-spread", 0.2),
        ("mean-distance-from-average", None),
        ("accuracy", None),
    ],
)
def test_numbers_of_the_rounds_that_were_evaluated(name: str, number: float | None) -> None:
    found = number_of_curves(name, ROUNDS)
    assert found is None if number is None else found == pytest.approx(number, nan_ok=True)


def test_columns_know_their_names_and_which_way_is_up() -> None:
    up = {
        "best-accuracy": True,
        "best-negative-log-likelihood": False,
        "rounds-to-accuracy-0.5": False,
        "rounds-to-negative-log-likelihood-1": False,
        "mean-log-precision-spread": None,
        "accuracy-at-round-10": True,
        "ensemble-negative-log-likelihood-at-round-10": False,
        "mean-distance-from-average": None,
    }
    assert {name: Column(metric=name).higher_is_better for name in up} == up
    wrong = ("rounds-to-acuracy-0.5", "rounds-to-accuracy-", "best-acuracy", "acuracy-at-round-10")
    for name in (*wrong, "accuracy-at-round-0", "round-at-round-5", "client-1-best-acuracy"):
        with pytest.raises(ValidationError, match=r"METRIC-at-round-N.* or client-K-NAME"):
            Column(metric=name)


def finish(study: StudyFolder, run: Any, accuracies: list[float], distance: float) -> RunFolder:
    """Write what a run leaves that was evaluated in every second round."""
    folder = RunFolder.create(study.runs, run.name, resolve(run.values).values, {})
    for number, accuracy in enumerate(accuracies, start=1):
        folder.append_round({"round": 2 * number - 1, "distance-from-average": 9.0})
        judged = {"accuracy": accuracy, "distance-from-average": distance}
        folder.append_round({"round": 2 * number, **judged})
    folder.write_metrics({"accuracy": accuracies[-1]})
    return folder


CLIENTS = {
    "0": {"test-examples": 7, "global-accuracy": 0.25, "best-better-accuracy": 1 / 3},
    "11": {"test-examples": 2, "best-better-accuracy": 1.0},
}


def test_a_result_keeps_what_clients_have_judged_and_tables_have_it(tmp_path: Path) -> None:
    columns = """
[[columns]]
metric = "client-11-best-better-accuracy"
scale = 100.0
decimals = 1

[[columns]]
metric = "client-0-global-accuracy"
"""
    scaled = scaled_study(tmp_path / "files", text=STUDY.split("[[columns]]")[0] + columns)
    study = StudyFolder(tmp_path / "study")
    one, other = scaled.runs()[0], scaled.runs()[1]
    finish(study, other, [0.2], 0.0)
    finish(study, one, [0.2], 0.0).write_json("run.json:clients", CLIENTS)
    result = result_of(study.run(one.name), one.name)
    study.keep([result])
    again = study.results()[one.name]
    assert again.clients == {**CLIENTS, "0": {**CLIENTS["0"], "best-better-accuracy": 0.3333333}}
    table = study_table(OpenedStudy(study, scaled))
    assert "| 100.0 | 0.250 |" in markdown(table)
    rows = list(csv.DictReader(io.StringIO(by_client(table))))
    assert [row["client"] for row in rows] == ["0", "11"]
    assert rows[0]["rule"] == one.labels["rule"]
    assert (rows[1]["best-better-accuracy"], rows[1]["global-accuracy"]) == ("1.0", "")
    for column in table.study.columns:
        assert column.higher_is_better


def made(folder: Path) -> StudyTable:
    """Return the table of a study with IID data, of which one row's second run is slow to learn."""
    scaled = scaled_study(folder / "files", text=STUDY.split("[[columns]]")[0] + COLUMNS)
    study = StudyFolder(folder / "study")
    curves = {
        ("WS", "0"): [0.5, 0.6, 0.4],
        ("WS", "1"): [0.4, 0.5, 0.45],
        ("NWA", "0"): [0.2, 0.4, 0.5],
        ("NWA", "1"): [0.2, 0.4, 0.45],
    }
    for run in scaled.runs():
        if run.labels["partition"] == "iid":
            row = run.labels["rule"], run.labels["seed"]
            finish(study, run, curves[row], 0.5 if row[0] == "WS" else 0.0)
    return study_table(OpenedStudy(study, scaled, lambda run: run.labels["partition"] == "iid"))


def test_a_table_has_them_and_says_where_a_value_was_not_reached(tmp_path: Path) -> None:
    table = made(tmp_path)
    rows = [line for line in markdown(table).splitlines() if line.startswith("| Flipout")]
    assert rows[0].endswith("| 55.0 ± 7.1 (11.1) | 3.0 ± 1.4 | 0.5000 ± 0.0000 |")
    assert rows[1].endswith("| 47.5 ± 3.5 (11.2) | inf | 0.0000 ± 0.0000 |")
    assert "inf: a run has not reached the value" in markdown(table)
    assert ",inf," in comma_separated(table)
    kept = table.runs[0][1]
    for result in (kept, parse_result(kept.to_line(), tmp_path)):
        assert [entry["round"] for entry in result.rounds] == [2, 4, 6]
        assert result.number("mean-distance-from-average") == 0.5
        assert result.number("mean-log-precision-spread") is None
        assert "best-accuracy" not in result.metrics


def test_a_round_whose_ensemble_alone_could_be_judged_is_kept(tmp_path: Path) -> None:
    """The model's logits are not finite: beside it the ensemble's numbers are worth most."""
    folder = RunFolder.create(tmp_path, "run", resolve({}).values, {})
    folder.append_round({"round": 4, "seconds": 1.0})
    folder.append_round(
        {"round": 5, "seconds": 1.0, "logits-not-finite": 3, "ensemble-accuracy": 0.5}
    )
    result = result_of(folder, "run")
    assert [row["round"] for row in result.rounds] == [5]
    assert result.number("ensemble-accuracy-at-round-5") == 0.5
    assert result.number("accuracy-at-round-5") is None
