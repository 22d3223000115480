"""Orders that results carry, and those that they do not: against numbers known beforehand."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from small_study import STUDY, finish_run, finished_study, scaled_study

from bfl.commands.main import main
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.comparisons import all_comparisons
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import by_pair, by_seed, latex, markdown
from bfl.experiments.studies.pages import rewritten
from bfl.experiments.studies.paired import compare_pairs
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.table import (
    MARKS,
    MARKS_OF_UNEQUAL_SEEDS,
    StudyTable,
    study_table,
)
from bfl.experiments.studies.verdicts import difference, verdicts

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


def test_the_interval_and_the_tests_are_those_of_the_books() -> None:
    one, other = np.array(BETTER), np.array(WORSE)
    paired = compare_pairs(one, other)
    reference = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert (paired.low, paired.high) == pytest.approx((reference.low, reference.high))
    assert (paired.pairs, paired.test) == (6, "signed-rank")
    assert paired.p_value == pytest.approx(2 / 2**6), "all of 64 signs but two are less extreme"
    assert paired.by_interval
    assert paired.by_test
    assert not compare_pairs(BETTER, SIMILAR).by_interval


def test_tied_differences_are_tested_by_their_signs() -> None:
    paired = compare_pairs([1.0, 1.0, 1.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0, 3.0])
    # Three up, one down, one equal: P(at least 3 of 4 alike) = 2 · 5/16.
    assert (paired.test, paired.p_value) == ("sign", pytest.approx(0.625))
    same = compare_pairs([0.5, 0.6], [0.5, 0.6])
    assert (same.difference, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)
    assert not same.by_interval


def test_equal_differences_of_shares_are_ties() -> None:
    """One image more of 360, found by subtraction at two places of the line."""
    more = [277 + images for images in (1, 11, 6, 7, -1, 9)]
    paired = compare_pairs([100 * right / 360 for right in more], [100 * 277 / 360] * 6)
    assert (paired.test, paired.p_value) == ("sign", pytest.approx(0.21875))
    apart = [[100 * right / 360 for right in each] for each in ([300, 300, 340], [299, 301, 338])]
    assert apart[0][0] - apart[1][0] != apart[1][1] - apart[0][1], "the last bits differ"
    assert compare_pairs(*apart).test == "sign"
    whole = [[right / 1000 for right in each] for each in ([901, 802, 703], [900, 800, 700])]
    assert compare_pairs(*whole).test == "signed-rank"


def test_few_pairs_say_little() -> None:
    assert not compare_pairs([0.9], [0.1]).testable
    assert math.isnan(compare_pairs([], []).difference)
    five = compare_pairs(BETTER[:5], WORSE[:5])
    assert five.by_interval
    assert not five.by_test, "the least p-value of five pairs is 1/16"
    with pytest.raises(ValueError, match="2 numbers and 1 others"):
        compare_pairs([1.0, 2.0], [1.0])


def test_a_table_marks_what_is_significant_and_what_is_not(tmp_path: Path) -> None:
    _, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE, "LP": SIMILAR})
    rows = [line for line in markdown(table).splitlines() if "| iid |" in line]
    assert "| **92.50 ± 1.87** |" in rows[0]
    assert "| 81.58 ± 2.01 ‡ |" in rows[1]
    assert "| 92.33 ± 2.52 ≈ |" in rows[2]
    assert "Bold: the best mean of its group" in markdown(table)


def test_rows_with_unequal_seeds_are_compared_on_those_they_share(tmp_path: Path) -> None:
    _, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE[:3], "LP": SIMILAR})
    rows = list(csv.DictReader(io.StringIO(by_pair(table))))
    accuracy = next(row for row in rows if row["metric"] == "accuracy")
    assert accuracy["pairs"] == "3"
    assert float(accuracy["one_minus_other"]) == pytest.approx(
        100 * (sum(BETTER[:3]) - sum(WORSE[:3])) / 3
    )
    assert (accuracy["one_rule"], accuracy["other_rule"]) == ("WS", "NWA")
    assert (accuracy["order"], accuracy["greater"]) == ("interval", "one")
    assert float(accuracy["p"]) == 0.25
    (row,) = [line for line in markdown(table).splitlines() if "NWA | iid" in line]
    assert "†" in row
    assert "‡" not in row


def test_runs_of_other_partitions_are_no_pairs(tmp_path: Path) -> None:
    study, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE}, SIX)
    for seed in range(6):
        for rule, clients in (("ws", 3), ("nwa", 3 if seed < 4 else 4)):
            folder = RunFolder(study.runs / f"flipout-{rule}_iid_seed-{seed}")
            folder.write_partition({"num_examples": [7] * clients})
    again = study_table(study, study_in(study))
    assert {each.paired.pairs for each in all_comparisons(table.pairing)} == {6}
    assert {each.paired.pairs for each in all_comparisons(again.pairing)} == {4}


def test_one_seed_marks_nothing(tmp_path: Path) -> None:
    _, table = made(tmp_path, {"WS": BETTER[:1], "NWA": WORSE[:1]}, SIX)
    assert "**" not in markdown(table)
    assert "‡" not in markdown(table)
    assert "No order without two seeds in common: NWA 80.00." in verdicts(table)


def test_the_best_of_unequal_seeds_is_of_the_lines_with_the_most(tmp_path: Path) -> None:
    """A line without its hard seeds has the best mean, of what the others are better at."""
    hard = [0.95, 0.94, 0.93, 0.6, 0.6, 0.6]
    easy = [each - 0.01 for each in hard[:3]]
    _, table = made(tmp_path, {"WS": hard, "NWA": easy}, SIX)
    said = verdicts(table)
    first = (
        "accuracy (%): no best mean, as WS alone has 6 seeds; the others against its mean, 77.00."
    )
    # Shares of 100 images: one fewer in each of three pairs.
    assert f"{first} No significant order: NWA 93.00 (-1.00, -2.43 to +0.43, 3 seeds" in said
    assert "**" not in markdown(table)
    _, table = made(tmp_path / "three", {"WS": hard, "NWA": easy, "LP": WORSE})
    said = verdicts(table)
    best = "accuracy (%): of the lines with 6 seeds, the best mean is that of LP, 81.58. "
    assert f"{best}No significant order: WS 77.00" in said
    rows = [line for line in markdown(table).splitlines() if "| iid |" in line]
    assert ["**" in row for row in rows[:3]] == [False, False, True]
    assert rows[1].split(" | ")[4].endswith(" ↑†"), "better than the bold one, and so marked"
    assert f"{MARKS} {MARKS_OF_UNEQUAL_SEEDS}" in markdown(table)
    assert "\\uparrow" in latex(table)
    assert "Better over the seeds that both have, by the interval" in said


def test_a_line_with_the_most_seeds_is_not_best_without_a_rival(tmp_path: Path) -> None:
    table = finished_study(tmp_path / "two", {"FML": [0.30, 0.31], "HBFL": [0.90]})
    assert "no best mean, as FML alone has 2 seeds; the others against its mean, 0.305. No" in (
        verdicts(table)
    )
    lines = {"A": [0.30, 0.31, 0.3], "B": [0.9, 0.9], "C": [0.91, 0.92]}
    table = finished_study(tmp_path / "three", lines)
    assert "the best mean is" not in verdicts(table)
    assert "**" not in markdown(table)
    assert MARKS_OF_UNEQUAL_SEEDS not in markdown(table), "nothing is marked"


def test_seeds_that_differ_from_group_to_group_alone_are_not_told(tmp_path: Path) -> None:
    _, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE}, SIX)
    assert MARKS in markdown(table)
    assert MARKS_OF_UNEQUAL_SEEDS not in markdown(table)


def test_latex_has_the_partitions_across_and_the_best_in_bold(tmp_path: Path) -> None:
    text = STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2, 3, 4, 5]")
    _, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE}, text)
    accuracy, nll = latex(table).split("\\end{table}\n")[:2]
    assert "model & rule & iid & Dirichlet 0.5 \\\\" in accuracy
    assert "Flipout & WS & \\textbf{92.50 $\\pm$ 1.87} & -- \\\\" in accuracy
    assert " & published & 90.50 $\\pm$ 1.00 & 80.00 $\\pm$ 2.00 \\\\" in accuracy
    assert "Flipout & NWA & 81.58 $\\pm$ 2.01 $^\\ddagger$ & -- \\\\" in accuracy
    assert "Small: NLL." in nll
    assert accuracy.count("{") == accuracy.count("}")


def test_latex_says_which_lines_have_fewer_seeds(tmp_path: Path) -> None:
    """It has no column for the number of runs, as the other tables have."""
    _, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE[:3], "LP": SIMILAR})
    accuracy = latex(table).split("\\end{table}\n")[0]
    (row,) = [line for line in accuracy.splitlines() if line.startswith("Flipout & NWA")]
    assert row == "Flipout & NWA & 80.33 $\\pm$ 1.53 $^\\dagger$ (n = 3) & -- \\\\"
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


def test_verdicts_are_written_from_the_results(tmp_path: Path) -> None:
    _, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE, "LP": SIMILAR})
    text = verdicts(table)
    assert "- iid, accuracy (%): the best mean is that of WS, 92.50." in text
    against = compare_pairs([100 * x for x in WORSE], [100 * x for x in BETTER])
    interval = f"{against.low:+.2f} to {against.high:+.2f}, 6 seeds, p = 0.031"
    assert f"Worse, by interval and exact test: NWA 81.58 (-10.92, {interval})." in text
    assert "No significant order: LP 92.33 (-0.17, " in text
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n<!-- verdicts study -->\nold\n<!-- end of verdicts -->\nAfter.\n")
    assert main(["verdicts", str(page)]) == 0
    written = page.read_text(encoding="utf-8")
    assert written.startswith(
        "Before.\n\n<!-- verdicts study -->\nAt the scale of the study's file."
    )
    assert written.endswith("<!-- end of verdicts -->\nAfter.\n")
    assert text in written
    assert rewritten(page) == written
    with pytest.raises(DataError, match="has no section"):
        rewritten(_written(tmp_path / "other.md", "nothing"))


def test_the_difference_of_two_lines_is_written_from_the_results(tmp_path: Path) -> None:
    _, table = made(tmp_path, {"WS": BETTER, "NWA": WORSE, "LP": SIMILAR})
    against = compare_pairs([100 * x for x in WORSE], [100 * x for x in BETTER])
    interval = f"{against.low:+.2f} to {against.high:+.2f}, 6 seeds, p = 0.031"
    text = difference(table, "NWA", "WS")
    assert "- iid, NWA against WS: accuracy (%) 81.58 against 92.50, worse, by interval" in text
    assert f"(-10.92, {interval})" in text
    assert "NLL 0.184 against 0.075, worse" in text
    assert "accuracy (%) 92.50 against 81.58, better, by interval and" in difference(
        table, "WS", "NWA"
    )
    assert "92.33 against 92.50, no significant order (-0.17, " in difference(table, "LP", "WS")
    _, fewer = made(tmp_path / "fewer", {"WS": BETTER, "NWA": WORSE[:3]}, SIX)
    shared = f"accuracy (%) {100 * sum(WORSE[:3]) / 3:.2f} against {100 * sum(BETTER[:3]) / 3:.2f}"
    assert shared in difference(fewer, "NWA", "WS"), "means over the seeds that both have"
    page = _written(
        tmp_path / "page.md",
        "A\n<!-- verdicts study -->\n<!-- end of verdicts -->\nB\n"
        "<!-- difference study: NWA against WS -->\nold\n<!-- end of difference -->\nC\n"
        "<!-- table study -->\n<!-- end of table -->\n",
    )
    written = rewritten(page)
    assert f"<!-- table study -->\n{markdown(table).partition(chr(10))[2].lstrip()}" in written
    assert f"B\n<!-- difference study: NWA against WS -->\n{text}<!-- end of difference" in written
    assert verdicts(table) in written
    with pytest.raises(ConfigurationError, match="unknown line 'NWB'"):
        difference(table, "NWB", "WS")


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_what_pages_say_of_orders_is_what_their_results_say() -> None:
    pages = [
        page
        for page in sorted((ROOT / "docs" / "results").glob("*.md"))
        if "<!-- end of verdicts -->" in page.read_text(encoding="utf-8")
    ]
    assert pages
    for page in pages:
        assert rewritten(page) == page.read_text(encoding="utf-8"), page
