"""Orders that results carry, and those that they do not: against numbers known beforehand."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from small_study import STUDY, finish_run, finished_study, scaled_study

from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import by_seed, latex
from bfl.experiments.studies.table import (
    StudyTable,
    study_table,
)

SIX = STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2, 3, 4, 5]").split("[[columns]]")[0]
THREE = SIX + '[[rows]]\nlabel = { model = "Flipout", rule = "LP" }\nstrategy = "lp"\n'
ROOT = Path(__file__).resolve().parents[3]
BETTER = [0.90, 0.91, 0.92, 0.93, 0.94, 0.95]
WORSE = [0.80, 0.82, 0.79, 0.81, 0.83, 0.845]
SIMILAR = [0.905, 0.90, 0.935, 0.90, 0.96, 0.94]


def made(
    folder: Path, accuracies: dict[str, list[float]], text: str = THREE
) -> tuple[StudyFolder, StudyTable]:
    """Make a study whose rows have these accuracies by seed, with IID data."""
    scaled = scaled_study(folder / "files", text=text)
    study = StudyFolder(folder / "study")
    study.begin(scaled, {}, {})
    for run in scaled.runs:
        seed, numbers = int(run.labels["seed"]), accuracies.get(run.labels["rule"], [])
        if run.labels["partition"] == "iid" and seed < len(numbers):
            accuracy = numbers[seed]
            finish_run(
                study, run.name, run.values, accuracy=accuracy, negative_log_likelihood=1 - accuracy
            )
    return study, study_table(study, scaled)


def test_latex_has_the_partitions_across_(tmp_path: Path) -> None:
    text = STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2, 3, 4, 5]")
    _, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE}, text)
    accuracy, nll = latex(table).split("\\end{table}\n")[:2]
    assert "model & rule & iid & Dirichlet 0.5 \\\\" in accuracy
    assert "Flipout & WS & 92.50 $\\pm$ 1.87 (2.63) & -- \\\\" in accuracy
    assert " & published & 90.50 $\\pm$ 1.00 & 80.00 $\\pm$ 2.00 \\\\" in accuracy
    assert "Flipout & NWA & 81.58 $\\pm$ 2.01 (2.74) & -- \\\\" in accuracy
    assert "Small: NLL." in nll
    assert accuracy.count("{") == accuracy.count("}")


def test_latex_says_which_lines_have_fewer_seeds(tmp_path: Path) -> None:
    """It has no column for the number of runs, as the other tables have."""
    _, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE[:3], "LP": SIMILAR})
    accuracy = latex(table).split("\\end{table}\n")[0]
    (row,) = [line for line in accuracy.splitlines() if line.startswith("Flipout & NWA")]
    assert row == "Flipout & NWA & 80.33 $\\pm$ 1.53 (3.97) (n = 3) & -- \\\\"
    assert accuracy.count("(n = 3)") == 1
    assert "n: that many seeds, the others 6." in accuracy
    _, equal = made(tmp_path / "equal", {"WS": BETTER, "NWA": WORSE}, SIX)
    assert "n = " not in latex(equal)
    assert "that many seeds" not in latex(equal)


def test_a_line_a_seed(tmp_path: Path) -> None:
    _, table = made(tmp_path, {"WS": BETTER[:2]}, SIX)
    rows = list(csv.DictReader(io.StringIO(by_seed(table))))
    assert [(row["seed"], float(row["accuracy"])) for row in rows] == [("0", 0.9), ("1", 0.91)]
    assert rows[0]["rounds"] == "4"


def test_a_seeds_line_has_the_tables_numbers_of_curves(tmp_path: Path) -> None:
    """No metric of a run has such a name; where a run has no such number, the cell is empty."""
    curves = ("best-accuracy", "accuracy-at-round-1", "accuracy-at-round-3")
    columns = "".join(f'[[columns]]\nmetric = "{name}"\ntitle = "{name}"\n' for name in curves)
    table = finished_study(tmp_path, {"WS": BETTER[:2]}, more=columns)
    rows = list(csv.DictReader(io.StringIO(by_seed(table))))
    assert [row["accuracy"] for row in rows] == ["0.9", "0.91"]
    assert [[row[name] for name in curves] for row in rows] == [["0.1", "0.1", ""]] * 2
