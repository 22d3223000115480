"""Outliers, other seeds, lines without runs, false copies: none changes what the pairs carry."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import finished_study, scaled_study

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.experiments.studies.chance import AgainstChance, chance_said
from bfl.experiments.studies.checks import PlannedRun
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.comparisons import INTERVAL, NOT, TEST, TEST_ALONE, mark
from bfl.experiments.studies.contradictions import untrue_copies
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import by_pair, latex, markdown
from bfl.experiments.studies.gathering import gather
from bfl.experiments.studies.merging import merge
from bfl.experiments.studies.orders import signed
from bfl.experiments.studies.paired import compare_pairs
from bfl.experiments.studies.run_result import result_of, write_result
from bfl.experiments.studies.same_runs import as_run
from bfl.experiments.studies.table import MARK_OF_THE_TEST_ALONE, MARKS_OF_UNEQUAL_SEEDS
from bfl.experiments.studies.verdicts import verdicts

ONE = [0.411, 0.422, 0.433, 0.414, 0.445, 0.447]
OTHER = [0.40, 0.41, 0.42, 0.40, 0.43]
ORDER = """
[[orders]]
metric = "accuracy"
better = { method = "A" }
worse = { method = "B" }
"""


@pytest.mark.parametrize(
    ("last", "sure"), [(0.43, TEST), (0.1, TEST_ALONE), (-9.0, TEST_ALONE), (math.nan, TEST_ALONE)]
)
def test_the_worse_the_other_the_more_an_order_stands(last: float, sure: str) -> None:
    """An outlier on the right side widens the interval; the exact test has what is left."""
    paired = compare_pairs(ONE, [*OTHER, last])
    assert (mark(paired), paired.direction) == (sure, 1)
    turned = compare_pairs([*OTHER, last], ONE)
    assert (mark(turned), turned.direction) == (sure, -1)


def test_a_mean_of_nothing_is_no_order_whichever_side_the_test_has() -> None:
    """As of whole numbers of rounds: eight are one more, and one is eight less."""
    one, other = [1.0] * 8 + [0.0], [0.0] * 8 + [8.0]
    for sides in ((one, other), (other, one)):
        paired = compare_pairs(*sides)
        assert paired.difference == 0.0
        assert paired.p_value is not None
        assert paired.p_value <= 0.05
        assert mark(paired) == NOT


@pytest.mark.parametrize("last", [0.5, 1e9, 1e300, math.inf])
def test_an_outlier_makes_no_ties_of_the_other_pairs(last: float) -> None:
    one = [0.51, 0.62, 0.73, 0.84, 0.96, last]
    paired = compare_pairs([0.5, 0.6, 0.7, 0.8, 0.9, 0.4], one, higher_is_better=False)
    assert (paired.test, paired.p_value, paired.direction) == ("signed-rank", 0.03125, -1)


def test_the_last_bits_of_an_outlier_are_no_difference() -> None:
    one = [0.51, 0.62, 0.73, np.nextafter(1e9, 2e9)]
    paired = compare_pairs(one, [0.5, 0.6, 0.7, 1e9])
    assert (paired.test, paired.p_value) == ("sign", 0.25)
    assert paired.difference == pytest.approx((0.01 + 0.02 + 0.03) / 4)


def test_where_test_and_mean_point_to_different_sides_there_is_no_order(tmp_path: Path) -> None:
    """Of fourteen pairs thirteen are better by a little and one is worse by far."""
    ones, others = [0.5 + number / 1000 for number in range(1, 14)], [0.5] * 13
    paired = compare_pairs([*ones, 0.0], [*others, 0.9])
    assert paired.p_value is not None
    assert paired.p_value < 0.05
    assert paired.difference < 0.0
    assert (mark(paired), paired.undecided) == (NOT, True)
    lines = {"A": [*ones, 0.0], "B": [*others, 0.9]}
    table = finished_study(tmp_path, lines, more=ORDER)
    assert "No significant order: A 0.471" in verdicts(table).replace("A 0.4708", "A 0.471")
    assert "A better than B: no significant order" in verdicts(table)
    # The sign test, and an interval that leaves out 0 on the other side.
    ties = compare_pairs([0.5] * 5 + [-0.001] * 15, [0.0] * 20)
    assert ties.by_interval
    assert (ties.test, mark(ties)) == ("sign", NOT)
    assert mark(compare_pairs(ONE[:3], OTHER[:3])) == INTERVAL
    assert mark(compare_pairs(ONE, ONE[::-1])) == NOT


def test_a_table_and_its_orders_say_that_the_test_alone_tells(tmp_path: Path) -> None:
    table = finished_study(tmp_path, {"A": ONE, "B": [*OTHER, 0.1]}, more=ORDER)
    said = verdicts(table)
    assert "Worse, by the exact test alone (the interval holds 0): B 0.360" in said
    assert "A better than B: found, by the exact test alone (the interval holds 0) (+0.069" in said
    text = markdown(table)
    assert " § |" in text
    assert MARK_OF_THE_TEST_ALONE in text
    assert "$^\\S$" in latex(table)
    assert ",test alone," in by_pair(table)
    plain = markdown(finished_study(tmp_path / "plain", {"A": ONE, "B": [*OTHER, 0.43]}))
    assert MARK_OF_THE_TEST_ALONE not in plain


def test_the_best_is_of_lines_with_the_same_seeds(tmp_path: Path) -> None:
    """Two lines of four seeds each, of which one has the easy one and the other the hard one."""
    easy, hard = [0.9, 0.9, 0.9, None, 0.87], [0.95, 0.94, 0.96, 0.39]
    table = finished_study(tmp_path / "two", {"A": hard, "B": easy}, more=ORDER)
    said, text = verdicts(table), markdown(table)
    first = "no best mean, as lines differ in which 4 seeds they have"
    assert f"{first}; the others against the mean of A" in said
    assert "better over the seeds that both have" not in said
    assert "**" not in text
    more = {"A": hard, "B": easy, "C": [0.89, 0.89, 0.88, 0.5, None]}
    table = finished_study(tmp_path / "three", more)
    assert "of the lines with the same 4 seeds, the best mean is that of A, 0.810." in (
        verdicts(table)
    )
    assert MARKS_OF_UNEQUAL_SEEDS in markdown(table)
    pair = {"C": [None, None, 0.6, 0.7], "D": [None, None, 0.6, 0.8]}
    table = finished_study(tmp_path / "four", {"A": [0.4, 0.5], "B": [0.4, 0.6], **pair})
    assert "no best mean, as lines differ in which 2 seeds they have" in verdicts(table)


def test_an_order_that_cannot_be_tested_is_not_left_out(tmp_path: Path) -> None:
    none = finished_study(tmp_path / "none", {"A": ONE, "B": [None] * 6}, more=ORDER)
    assert "A better than B: no order without two seeds in common." in verdicts(none)
    apart = {"A": [0.4, 0.5], "B": [None, None, 0.6, 0.7]}
    disjoint = finished_study(tmp_path / "disjoint", apart, more=ORDER)
    assert "A better than B: no order without two seeds in common." in verdicts(disjoint)
    nothing = finished_study(tmp_path / "nothing", {"A": [None], "B": [None]}, more=ORDER)
    assert "better than" not in verdicts(nothing), "no run at all: nothing to say of any order"


def test_false_copies_are_refused(tmp_path: Path) -> None:
    """Two runs are said to be one computation, and have other numbers."""
    finished_study(tmp_path, {"A": [0.4], "B": [0.5]})
    study, target = StudyFolder(tmp_path / "study"), tmp_path / "merged"
    first, second = (result_of(study.run(f"{name}_seed-0"), f"{name}_seed-0") for name in "ab")
    copy = replace(second, made_as=first.name)
    (told,) = untrue_copies([copy, first])
    assert "are said to be one computation (made-as) and differ in 1 numbers" in told
    assert "accuracy is 0.4 and 0.5" in told
    assert "remove both" in told
    planned = scaled_study(tmp_path / "planned", text=_text(tmp_path), published=None).runs[0]
    again = as_run(copy, PlannedRun(planned, resolve(planned.values), {}))
    assert again.made_as == "", "of no run may be said that it is its own copy"
    assert not list(untrue_copies([first, second]))
    assert not list(untrue_copies([first, replace(first, name=second.name, made_as=first.name)]))
    # Of a source that is not there its copies have to agree with each other.
    assert list(untrue_copies([replace(first, name="c", made_as="x"), replace(copy, made_as="x")]))
    ours, theirs = StudyFolder(tmp_path / "ours"), StudyFolder(tmp_path / "theirs")
    write_result(ours.result_file(first.name), first)
    write_result(theirs.result_file(copy.name), copy)
    with pytest.raises(ConfigurationError, match="said to be one computation"):
        merge(target, [ours.path, theirs.path])
    assert not target.exists()
    runs = scaled_study(tmp_path / "again", text=_text(tmp_path), published=None).runs
    with pytest.raises(ConfigurationError, match="said to be one computation"):
        gather(StudyFolder(tmp_path / "new"), runs, [ours.path, theirs.path])


def _text(folder: Path) -> str:
    return next((folder / "files").glob("*.toml")).read_text("utf-8")


def test_negative_numbers_are_set_with_a_minus(tmp_path: Path) -> None:
    lines = {"A": [-0.3, -0.35], "B": [-0.3, -0.351]}
    text = latex(finished_study(tmp_path, lines, "retention-gain-accuracy-epistemic"))
    assert "\\textbf{$-$0.325 $\\pm$ 0.035}" in text
    assert "{-0" not in text


def test_a_chance_deviation_that_is_not_finite_tells_nothing() -> None:
    lost = compare_pairs([2.0, 2.1], [1.0, math.nan])
    column = Column(metric="retention-gain-accuracy-epistemic", decimals=2)
    said = chance_said(column, AgainstChance(2.05, math.nan, 1, lost))
    assert said == "no gain, as it is not finite in 1 of 2 runs"


def test_numbers_that_would_be_nothing_but_zeros() -> None:
    assert [signed(n, 3) for n in (0.0004, -0.0004, 0.0, 3e-15, -2.5)] == [
        "+4.0e-04",
        "-4.0e-04",
        "+0.000",
        "+0.000",
        "-2.500",
    ]
