"""Runs that have diverged or never reach a value count against their line; none drops out."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
from small_study import finished_study

from bfl.experiments.studies.formats import by_pair, markdown
from bfl.experiments.studies.paired import compare_pairs
from bfl.experiments.studies.table import StudyTable
from bfl.experiments.studies.verdicts import difference, verdicts

INF, NAN = math.inf, math.nan
REACHED = "rounds-to-accuracy-0.5"
ORDER = '[[orders]]\nmetric = "{}"\nbetter = {{ method = "A" }}\nworse = {{ method = "B" }}\n'


def pair(table: StudyTable) -> dict[str, str]:
    """Return the row of the only pair of lines."""
    [row] = csv.DictReader(io.StringIO(by_pair(table)))
    return row


def test_a_line_that_reaches_a_value_only_where_it_is_easy_is_not_better(tmp_path: Path) -> None:
    """B is faster where it gets there, in two of eight runs; of the survivors it would be best."""
    rounds = {"A": [5, 6, 4, 5, 7, 5, 6, 4], "B": [2, 4, INF, INF, INF, INF, INF, INF]}
    table = finished_study(tmp_path, rounds, REACHED, ORDER.format(REACHED))
    row = pair(table)
    assert (row["pairs"], row["one_not_finite"], row["other_not_finite"]) == ("8", "0", "6")
    assert (row["one_minus_other"], row["low_95"], row["high_95"]) == ("", "", "")
    # The six greatest of eight ranks: of 256 signs those with at most 1 + 2 on the other side.
    assert (row["test"], float(row["p"])) == ("signed-rank", pytest.approx(2 * 5 / 256))
    assert (row["order"], row["greater"]) == ("test alone", "other")
    said = verdicts(table)
    words = "in 6 of 8 pairs B never reached 0.5, so no difference and no interval, 8 seeds"
    assert (
        f"the best mean is that of A, 5.250. Worse, by the exact test alone: B inf ({words}" in said
    )
    assert f"A better than B: found, by the exact test alone ({words}" in said
    assert f"5.250 against inf, better, by the exact test alone ({words}" in difference(
        table, "A", "B"
    )
    rows = [line for line in markdown(table).splitlines() if "8 of 8" in line]
    assert [row.split(" | ")[-1] for row in rows] == ["**5.250 ± 1.035** |", "inf § |"]


@pytest.mark.parametrize(
    ("metric", "numbers"),
    [
        ("accuracy", {"A": [0.5, 0.6, 0.7, 0.8, 0.5, 0.6], "B": [0.9, 0.9, 0.95, NAN, NAN, NAN]}),
        (
            "negative-log-likelihood",
            {"A": [0.5, 0.6, 0.7, 0.8, 0.5, 0.6], "B": [0.1, 0.2, 0.3, INF, NAN, NAN]},
        ),
    ],
)
def test_a_run_that_has_diverged_is_worse_than_any(
    metric: str, numbers: dict[str, list[float]], tmp_path: Path
) -> None:
    table = finished_study(tmp_path, numbers, metric, ORDER.format(metric))
    row = pair(table)
    assert (row["pairs"], row["other_not_finite"], row["low_95"]) == ("6", "3", "")
    # Three of six are worse, and three better: nothing is known, where of three all were better.
    assert (row["order"], row["greater"]) == ("not significant", "")
    said = verdicts(table)
    assert "the best mean is that of A" in said
    assert "A better than B: no significant order (in 3 of 6 pairs B is not finite, so" in said


def test_which_side_is_worse_decides_for_which_line_the_test_is() -> None:
    for higher, direction in ((True, -1), (False, 1)):
        paired = compare_pairs([NAN] * 6, [0.5] * 6, higher_is_better=higher)
        assert (paired.by_test, paired.direction) == (True, direction)
        assert not paired.by_interval
        swapped = compare_pairs([0.5] * 6, [NAN] * 6, higher_is_better=higher)
        assert (swapped.by_test, swapped.direction) == (True, -direction)
    neither = compare_pairs([NAN] * 6, [0.5] * 6, higher_is_better=None)
    assert (neither.testable, neither.one_not_finite) == (False, 6)


def test_what_is_not_finite_has_the_greatest_ranks() -> None:
    """A run that gets worse without bound ends where the run that has diverged begins."""
    one = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0]
    other = [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 8.5]
    finite = compare_pairs(one, [*other[:5], 1e5, 8.5], higher_is_better=False)
    lost = compare_pairs(one, [*other[:5], INF, 8.5], higher_is_better=False)
    assert (lost.test, lost.p_value, lost.direction) == (finite.test, finite.p_value, -1)
    assert lost.p_value == pytest.approx(2 * 2 / 2**7)
    more = compare_pairs(one, [*other[:3], INF, INF, INF, 8.5], higher_is_better=False)
    assert (more.test, more.p_value) == (lost.test, lost.p_value), "in which order does not matter"
    both = compare_pairs([*one[:6], INF], [*other[:5], INF, 8.5], higher_is_better=False)
    assert (both.test, both.p_value) == ("sign", pytest.approx(2 * 8 / 2**7))


def test_two_runs_without_a_number_are_no_difference() -> None:
    paired = compare_pairs([INF, INF, 1.0], [INF, INF, 2.0], higher_is_better=False)
    assert (paired.pairs, paired.one_not_finite, paired.other_not_finite) == (3, 2, 2)
    assert (paired.test, paired.p_value, paired.direction) == ("sign", 1.0, -1)
    nobody = compare_pairs([INF] * 6, [NAN] * 6, higher_is_better=False)
    assert (nobody.p_value, nobody.direction, nobody.by_test) == (1.0, 0, False)


def test_one_pair_without_a_number_says_nothing() -> None:
    assert not compare_pairs([INF], [2.0], higher_is_better=False).testable


def test_where_no_line_has_a_mean_it_is_said_who_has_not_got_there(tmp_path: Path) -> None:
    rounds = {"A": [5, INF, 4], "B": [INF, INF, 5], "C": [3, 4, INF]}
    said = verdicts(finished_study(tmp_path, rounds, REACHED))
    assert (
        f"- {REACHED}: no best mean: A never reached 0.5 in 1 of 3 runs; B never reached 0.5 in 2 "
        "of 3 runs; C never reached 0.5 in 1 of 3 runs."
    ) in said


def test_a_run_that_has_no_such_number_is_no_pair(tmp_path: Path) -> None:
    """An ensemble's accuracy of a method without one is not a bad one."""
    numbers = {"A": [0.5, 0.6], "B": [0.4, 0.7]}
    table = finished_study(tmp_path, numbers, more='[[columns]]\nmetric = "ensemble-accuracy"\n')
    rows = list(csv.DictReader(io.StringIO(by_pair(table))))
    assert [row["metric"] for row in rows] == ["accuracy"]
