"""Numbers that come in steps: what differences that are all one number say of an order."""

from __future__ import annotations

import doctest
from itertools import product
from pathlib import Path

import pytest
from small_study import finished_study

from bfl.experiments.studies import paired, resolution
from bfl.experiments.studies.comparisons import INTERVAL, NOT, TEST, mark
from bfl.experiments.studies.paired import compare_pairs
from bfl.experiments.studies.resolution import share_step
from bfl.experiments.studies.verdicts import verdicts

SURE = (NOT, INTERVAL, TEST)


def found(*steps: int) -> str:
    """Return how sure an order is of differences of so many test images of 360 each."""
    right = [301 + 7 * seed for seed in range(len(steps))]
    more = [one + step for one, step in zip(right, steps, strict=True)]
    sides = ([number / 360 for number in side] for side in (more, right))
    return mark(compare_pairs(*sides, resolution=1 / 360))


def test_the_examples_of_the_docstrings() -> None:
    for module in (resolution, paired):
        assert doctest.testmod(module).failed == 0
        assert doctest.testmod(module).attempted


def test_differences_that_are_one_number_are_judged_as_others_are() -> None:
    assert found(2, 1, 2) == INTERVAL
    assert found(2, 2, 2) == INTERVAL, "not less than 2, 1 and 2 say"
    assert found(1, 1, 1) == NOT, "nor more than 1, 1 and 2 say"
    assert found(1, 1, 2) == NOT
    assert found(0, 0, 0) == NOT
    assert found(1, 1, 1, 1) == INTERVAL
    assert found(1, 1, 1, 1, 1, 1) == TEST


@pytest.mark.parametrize(("pairs", "most"), [(2, 9), (3, 5), (4, 3)])
def test_stronger_evidence_is_never_a_weaker_order(pairs: int, most: int) -> None:
    """Of all small differences: a greater mean at no greater deviation, or less deviation."""
    verdict = {}
    for steps in product(range(most + 1), repeat=pairs):
        if list(steps) == sorted(steps):
            total = sum(steps)
            spread = pairs * sum(step**2 for step in steps) - total**2  # whole: no rounding
            verdict[total, spread] = SURE.index(found(*steps))
    assert set(verdict.values()) == {0, 1}
    for (total, spread), sure in verdict.items():
        for (more, less), surer in verdict.items():
            if more >= total and less <= spread:
                assert surer >= sure, (total, spread, more, less)


def test_what_is_shifted_or_enlarged_is_no_weaker_either() -> None:
    for steps in product(range(4), repeat=3):
        sure = SURE.index(found(*steps))
        assert SURE.index(found(*(step + 1 for step in steps))) >= sure
        assert SURE.index(found(*(2 * step for step in steps))) >= sure


def test_numbers_that_may_be_any_have_no_step() -> None:
    assert compare_pairs([1.5, 2.5, 3.5], [1.0, 2.0, 3.0]).by_interval
    equal = compare_pairs([0.1 + 0.2] * 3, [0.3] * 3)
    assert (equal.by_interval, equal.p_value) == (False, 1.0), "they differ in their last bits"


def test_the_step_of_shares_is_found() -> None:
    assert share_step([right / 360 for right in (347, 350, 359)]) == 1 / 360
    curve = [float(f"{right / 10_000:.7g}") for right in (1001, 4127, 9339, 77)]
    assert share_step(curve) == 1 / 10_000
    assert share_step([0.0, 1.0, float("nan")]) == 1.0
    assert share_step([0.7071067812, 0.1415926536, 0.7182818285, 0.6180339887, 0.4142135624]) == 0.0


@pytest.mark.parametrize(
    ("metric", "a", "b", "said"),
    [
        # Of 60 test images; the last seed alone shows that there are so many.
        ("accuracy", [50, 40, 31], [49, 39, 30], "No significant order: B"),
        ("accuracy", [50, 40, 31], [48, 38, 29], "Worse, by the interval"),
        ("rounds-to-accuracy-0.5", [2, 3, 4], [3, 4, 5], "No significant order: B"),
        ("rounds-to-accuracy-0.5", [2, 3, 4], [4, 5, 6], "Worse, by the interval"),
        ("negative-log-likelihood", [0.25, 0.375, 0.5], [0.375, 0.5, 0.625], "Worse, by the inter"),
    ],
)
def test_a_column_knows_in_which_steps_its_numbers_come(
    metric: str, a: list[float], b: list[float], said: str, tmp_path: Path
) -> None:
    of = 60 if metric == "accuracy" else 1
    lines = {"A": [number / of for number in a], "B": [number / of for number in b]}
    assert said in verdicts(finished_study(tmp_path, lines, metric))
