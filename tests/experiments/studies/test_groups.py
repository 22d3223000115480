"""Which lines are compared, what is said of ties, of other partitions, and of a study's scale."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from small_study import finish_run, finished_study, scaled_study
from test_study_files import FILES as STUDIES

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import DATA, RunFolder
from bfl.experiments.studies import read_study
from bfl.experiments.studies.comparisons import Pairing
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import by_pair, markdown
from bfl.experiments.studies.gathering import StudyResults
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.run_result import result_of
from bfl.experiments.studies.scale import IN_FILE
from bfl.experiments.studies.study import Study
from bfl.experiments.studies.table import StudyTable, study_table
from bfl.experiments.studies.verdicts import verdicts

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


def settings(study: Study) -> list[set[tuple[object, ...]]]:
    """Return data, network, clients and partition of the runs of each group that is compared."""
    runs = {run.cell.key: run for run in study.runs()}
    keys = ("dataset", "model", "clients", "partition", "alpha")
    return [
        {tuple(runs[cell.key].values.get(key) for key in keys) for cell in cells}
        for _, cells in study.groups()
    ]


def differing(study: Study) -> set[str]:
    """Return the label columns in which lines that are compared differ."""
    return {
        column
        for _, cells in study.groups()
        for column in study.label_columns
        if len({cell.labels[column] for cell in cells}) > 1
    }


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_study_compares_lines_of_other_data_or_networks(path: Path) -> None:
    study = read_study(path)
    assert all(len(each) == 1 for each in settings(study))
    assert sum(len(cells) for _, cells in study.groups()) == len(study.cells())


@pytest.mark.parametrize(
    ("name", "column", "groups"),
    [("table4", "server", 10), ("table7", "alpha", 2), ("figure2", "samples", 2)],
)
def test_what_fedbes_studies_without_rows_compare(name: str, column: str, groups: int) -> None:
    study = read_study(CONFIGS / "fedbe2021" / f"{name}.toml")
    assert differing(study) == {column}
    assert study.compared == (column,)
    assert len(study.groups()) == groups


def made(folder: Path, text: str, accuracies: Iterable[float]) -> StudyTable:
    """Make a study with these accuracies in the order of its runs."""
    scaled = scaled_study(folder / "files", text=text, published=None)
    study = StudyFolder(folder / "study")
    study.begin(scaled, {}, {})
    for run, accuracy in zip(scaled.runs, accuracies, strict=False):
        finish_run(study, run.name, run.values, accuracy=accuracy)
    return study_table(study, scaled)


def test_verdicts_of_axes_alone_are_within_data_and_network(tmp_path: Path) -> None:
    numbers = [0.01 * i**2 % 0.97 for i in range(24)]
    table = made(tmp_path, AXES, numbers)
    said = [line for line in verdicts(table).splitlines() if line.startswith("- ")]
    assert [line.split(", accuracy")[0] for line in said] == [
        "- digits, small",
        "- digits, large",
        "- four, small",
        "- four, large",
    ]
    rows = list(csv.DictReader(io.StringIO(by_pair(table))))
    assert [(row["data"], row["network"]) for row in rows] == [
        ("digits", "small"),
        ("digits", "large"),
        ("four", "small"),
        ("four", "large"),
    ]
    assert markdown(table).count("**") == 2 * 4


def test_a_file_may_say_that_networks_are_compared(tmp_path: Path) -> None:
    text = AXES.replace('title = "Small"', 'title = "Small"\ncompare = ["network"]')
    study = scaled_study(tmp_path, text=text, published=None).study
    assert differing(study) == {"network"}
    assert len(study.groups()) == 4


def test_rows_of_other_data_are_not_compared(tmp_path: Path) -> None:
    data = {"a": "digits", "b": "resized:4:digits"}
    rows = "".join(f'[[rows]]\nlabel = "{a}"\ndataset = "{b}"\n' for a, b in data.items())
    text = AXES.split("data =")[0] + '[[columns]]\nmetric = "accuracy"\n' + rows
    table = made(tmp_path, text, [0.1, 0.9] * 3)
    assert "best mean" not in verdicts(table)
    assert len(by_pair(table).splitlines()) == 1, "the header alone"
    assert "**" not in markdown(table)


def test_lines_that_are_tied_are_all_named_and_marked(tmp_path: Path) -> None:
    numbers = {"A": [0.5, 0.7, 0.6], "B": [0.6, 0.5, 0.7], "C": [0.3, 0.2, 0.31]}
    forward = finished_study(tmp_path / "one", numbers)
    backward = finished_study(tmp_path / "other", dict(reversed(numbers.items())))
    assert "the best mean is a tie of A and B, 0.600." in verdicts(forward)
    assert "the best mean is a tie of B and A, 0.600." in verdicts(backward)
    for table in (forward, backward):
        marked = {row.split(" | ")[0]: row for row in markdown(table).splitlines()}
        assert [marked[f"| {name}"].count("**") for name in "ABC"] == [2, 2, 0]


def test_a_line_is_worse_than_a_tie_only_if_it_is_worse_than_each(tmp_path: Path) -> None:
    numbers = {"A": [0.6, 0.6, 0.61], "B": [0.2, 0.6, 1.01], "C": [0.5, 0.5, 0.5]}
    for name, rows in (("one", numbers), ("other", dict(reversed(numbers.items())))):
        table = finished_study(tmp_path / name, rows)
        assert "No significant order: C 0.500 (against B -0.103, " in verdicts(table)
        assert "≈" in next(row for row in markdown(table).splitlines() if "| C |" in row)
    alone = finished_study(tmp_path / "alone", {name: numbers[name] for name in "AC"})
    assert "Worse, by the interval" in verdicts(alone)


def test_a_line_of_fewer_seeds_is_not_called_worse_where_it_is_better(tmp_path: Path) -> None:
    numbers = {"A": [0.5, 0.6, 0.4, 0.99, 0.99], "B": [0.55, 0.66, 0.45]}
    numbers["C"] = [*numbers["A"][:4], 0.3]
    said = verdicts(finished_study(tmp_path, numbers))
    assert "of the lines with 5 seeds, the best mean is that of A" in said
    assert "Better over the seeds that both have, by the interval" in said
    assert "Worse" not in said


@pytest.mark.parametrize(
    ("differ", "said"),
    [
        (3, "No order, as the partitions differ in 3 of 3 seeds in common: B"),
        (2, "No order, as the partitions differ in 2 of 3 seeds in common: B"),
        (1, "2 seeds, p = 0.5"),
    ],
)
def test_other_partitions_are_not_called_other_seeds(
    differ: int, said: str, tmp_path: Path
) -> None:
    finished_study(tmp_path, {"A": [0.5, 0.6, 0.7], "B": [0.4, 0.5, 0.1]})
    folder = StudyFolder(tmp_path / "study")
    for seed in range(3):
        for name, clients in (("a", 3), ("b", 4 if seed < differ else 3)):
            run = RunFolder(folder.runs / f"{name}_seed-{seed}")
            run.write_partition({"num_examples": [7] * clients})
    assert said in verdicts(study_table(folder, study_in(folder)))


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
    assert pairing.compare(one, other, study.study.columns[0]).pairs == 1
    assert pairing.no_order(one, other) == (
        "no order, as the test images differ in 2 of 3 seeds in common"
    )


def test_seeds_that_only_one_line_has_are_called_so(tmp_path: Path) -> None:
    said = verdicts(finished_study(tmp_path, {"A": [0.5, 0.6, 0.7], "B": [0.4]}))
    assert "No order without two seeds in common: B 0.400." in said


def test_a_reduction_that_stands_in_the_file_is_said(tmp_path: Path) -> None:
    plain = finished_study(tmp_path / "plain", {"A": [0.5], "B": [0.4]})
    assert plain.scale == IN_FILE
    text = AXES.replace("rounds = 1", "rounds = 1\ntrain-examples = 500\ntest-examples = 0.5")
    scaled = scaled_study(tmp_path / "less", text=text, published=None)
    assert scaled.said == f"{IN_FILE}, train-examples 500, test-examples 0.5"
    assert resolve(scaled.runs[0].values, check_data=False).keys.train_examples == 500
    smaller = scaled_study(tmp_path / "least", "seeds=1", text=text, published=None)
    assert smaller.said == "scaled down: seeds 3 → 1"
