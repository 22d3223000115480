"""The table's numbers, against numbers computed by hand; and its three formats."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from small_study import STUDY, finish_run, finished_study, planned, scaled_study

from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import comma_separated, latex, markdown
from bfl.experiments.studies.scale import IN_FILE, ScaledStudy
from bfl.experiments.studies.table import StudyTable, mean_and_spread, study_table

ACCURACIES = {"flipout-ws_iid_seed-0": 0.90, "flipout-ws_iid_seed-1": 0.94}


def made(
    folder: Path, scale: str = "", text: str = STUDY
) -> tuple[StudyFolder, ScaledStudy, StudyTable]:
    """Make a study of which three runs are done, one has begun and one has failed."""
    scaled = scaled_study(folder / "files", scale, text=text)
    study = StudyFolder(folder / scaled.folder_name)
    study.begin(scaled, {}, {})
    values = {run.name: run.values for run in scaled.runs}
    for name, accuracy in ACCURACIES.items():
        if name in values:
            finish_run(
                study, name, values[name], accuracy=accuracy, negative_log_likelihood=accuracy / 2
            )
    one = "flipout-nwa_iid_seed-0"
    finish_run(study, one, values[one], accuracy=0.5, negative_log_likelihood=1.0)
    begun = planned(study, scaled)[2]
    RunFolder.create(study.runs, begun.name, begun.configuration.values, {})
    study.record_failure("flipout-nwa_dirichlet-0.5_seed-0", "it has failed")
    return study, scaled, study_table(study, scaled)


def test_means_spreads_and_differences(tmp_path: Path) -> None:
    *_, table = made(tmp_path)
    ws, ws_dirichlet, nwa, nwa_dirichlet = table.lines
    accuracy, nll = ws.numbers
    # 90 and 94: mean 92, deviations −2 and 2, sample variance 8.
    assert accuracy.ours == pytest.approx(92.0)
    assert accuracy.ours_spread == pytest.approx(8**0.5)
    assert (accuracy.published, accuracy.published_spread) == (90.5, 1.0)
    assert accuracy.difference == pytest.approx(1.5)
    assert nll.ours == pytest.approx(0.46)
    assert (nll.published, nll.published_spread) == (0.3, None)
    assert nll.difference == pytest.approx(0.16)
    assert (ws.done, ws.runs, ws.state) == (2, 2, "")
    assert (nwa.done, nwa.runs, nwa.state) == (1, 2, "missing")
    assert nwa.numbers[0].ours_spread is None, "one run has no spread"
    assert nwa.numbers[1].difference is None, "not published"
    assert (ws_dirichlet.done, ws_dirichlet.state) == (0, "begun, round 0 of 4, missing")
    assert nwa_dirichlet.state == "failed, missing"
    assert nwa_dirichlet.numbers[0].difference is None


def test_a_standard_error_is_the_deviation_over_the_root_of_n(tmp_path: Path) -> None:
    *_, table = made(tmp_path, text='spread = "standard-error"\n' + STUDY)
    assert table.lines[0].numbers[0].ours_spread == pytest.approx(2.0)
    assert "standard error" in " ".join(table.notes)
    assert mean_and_spread([1.0, 2.0, 4.0], "standard-error")[1] == pytest.approx(
        ((16 + 1 + 25) / 9 / 2 / 3) ** 0.5
    )


def test_markdown_shows_all_of_it(tmp_path: Path) -> None:
    *_, table = made(tmp_path)
    text = markdown(table)
    header, rule, *rows = [line for line in text.splitlines() if line.startswith("|")]
    assert header == (
        "| model | rule | partition | runs | accuracy (%) | published | difference | NLL | "
        "published | difference |"
    )
    assert rule.count("---") == 10
    assert rows[0] == (
        "| Flipout | WS | iid | 2 of 2 | 92.00 ± 2.83 (3.84) | 90.50 ± 1.00 | +1.50 "
        "| 0.460 ± 0.014 | 0.300 | +0.160 |"
    )
    assert rows[2] == (
        "| Flipout | NWA | iid | 1 of 2 | 50.00 (15.81) | 70.00 ± 3.00 | -20.00 | 1.000 | – | – |"
    )
    assert "begun, round 0 of 4" in rows[1]
    assert "| 0 of 2 | failed, missing | 60.00 ± 4.00 | – |" in rows[3]
    assert text.startswith(
        "# Small\n\nAt the scale of the study's file. 3 of 8 runs are done; failed, and so "
        "in no mean or order: Flipout NWA Dirichlet 0.5 in 1 of 2. Ours ± sample standard"
    )


def test_every_format_says_the_scale(tmp_path: Path) -> None:
    *_, table = made(tmp_path, "rounds=0.5,seeds=1")
    said = "caled down: rounds 4 → 2, seeds 2 → 1"
    assert said in markdown(table)
    assert said in comma_separated(table)
    assert said.replace("→", r"$\to$") in latex(table)


def test_csv_has_the_numbers_in_full(tmp_path: Path) -> None:
    *_, table = made(tmp_path)
    rows = list(csv.DictReader(io.StringIO(comma_separated(table))))
    assert [row["rule"] for row in rows] == ["WS", "WS", "NWA", "NWA"]
    first = rows[0]
    assert float(first["accuracy"]) == table.lines[0].numbers[0].ours
    assert float(first["accuracy_spread"]) == pytest.approx(8**0.5)
    assert first["negative-log-likelihood_published_spread"] == ""
    assert (first["runs_done"], first["runs"], first["scale"]) == ("2", "2", IN_FILE)
    assert rows[3]["accuracy"] == rows[3]["accuracy_difference"] == ""


def test_latex_is_escaped(tmp_path: Path) -> None:
    *_, table = made(tmp_path, text=STUDY.replace('title = "Small"', 'title = "50 % & more_"'))
    text = latex(table)
    assert r"50 \% \& more\_" in text
    assert r"Flipout & WS & 92.00 $\pm$ 2.83 (3.84) & -- \\" in text
    assert r" & published & 90.50 $\pm$ 1.00 & 80.00 $\pm$ 2.00 \\" in text
    assert text.count(r"\\") == 2 * 5
    assert text.count("{") == text.count("}")


def test_a_part_of_the_runs_makes_a_part_of_the_table(tmp_path: Path) -> None:
    study, scaled, _ = made(tmp_path)
    table = study_table(study, scaled, lambda run: run.name == "flipout-ws_iid_seed-1")
    (line,) = table.lines
    assert (line.done, line.runs) == (1, 1)
    assert line.numbers[0].ours == pytest.approx(94.0)


def test_without_a_published_table_ours_stands_alone(tmp_path: Path) -> None:
    text = STUDY.split("[[columns]]")[0]
    *_, table = made(tmp_path, text=text)
    assert "| Flipout | WS | iid | 2 of 2 | 92.00 ± 2.83 (3.84) | 0.460 ± 0.014 |" in markdown(
        table
    )
    assert "ublished" not in markdown(table)


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([8e-9, 7e-9, 6e-9], "7.0e-09 ± 1.0e-09"),
        ([7e-9, 7e-9], "7.0e-09 ± 0.000"),
        ([0.5, 0.7, 0.6], "0.600 ± 0.100"),
    ],
)
def test_a_spread_is_shown_as_its_value_is(
    numbers: list[float], shown: str, tmp_path: Path
) -> None:
    """What is too small for its column has no spread of exactly 0 but where it is 0."""
    table = finished_study(tmp_path, {"A": numbers}, "mean-epistemic")
    assert f"| {shown} |" in markdown(table)
    assert shown.replace("±", "$\\pm$") in latex(table)


def test_what_is_too_small_for_its_column_is_still_seen(tmp_path: Path) -> None:
    scaled = scaled_study(tmp_path / "files", text=STUDY.split("[[columns]]")[0])
    study = StudyFolder(tmp_path / "study")
    run = scaled.runs[0]
    finish_run(study, run.name, run.values, accuracy=4e-6, negative_log_likelihood=0.0)
    text = markdown(study_table(study, scaled))
    assert "| Flipout | WS | iid | 1 of 2 | 4.0e-04 | 0.000 |" in text


def test_a_number_that_a_run_has_not_is_a_dash(tmp_path: Path) -> None:
    extra = '[[columns]]\nmetric = "degree-of-spread"\n'
    *_, table = made(tmp_path, text=STUDY + extra)
    assert table.lines[0].numbers[2].ours is None
    assert markdown(table).splitlines()[6].endswith("| – |")
