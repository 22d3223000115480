"""Which orders between a study's lines its results carry: paired by seed and partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.gathering import StudyResults
from bfl.experiments.studies.paired import Paired, compare_pairs
from bfl.experiments.studies.published import Key
from bfl.experiments.studies.run_result import RunResult
from bfl.experiments.studies.scale import ScaledStudy
from bfl.experiments.studies.study import SEED, Cell, Run, Study

BEST, INTERVAL, TEST, NOT = "best", "interval", "test", "not significant"
"""What a line is marked with: the best of its group; or that it differs from the best by the
interval, by the exact test as well, or that the order is not significant."""


@dataclass(frozen=True)
class Comparison:
    """Two lines of a table compared in one column, over the seeds that both have.

    Attributes:
        group: The labels that both have.
        column: The column.
        one: The labels in which they differ, of the one line.
        other: Those of the other line.
        paired: One − other, in the column's unit.
        same: Whether both are one computation.
    """

    group: Mapping[str, str]
    column: Column
    one: Mapping[str, str]
    other: Mapping[str, str]
    paired: Paired
    same: bool


class Pairing:
    """The finished runs of a study by line and seed.

    Args:
        results: What the study's runs have given.
        scaled: The study.
        wanted: Which runs count.
    """

    def __init__(
        self, results: StudyResults, scaled: ScaledStudy, wanted: Callable[[Run], bool]
    ) -> None:
        self.study = scaled.study
        self._runs: dict[Key, dict[str, RunResult]] = {}
        for run in filter(wanted, scaled.runs):
            result = results.finished.get(run.name)
            if result is not None:
                seeds = self._runs.setdefault(run.cell.key, {})
                seeds[run.labels.get(SEED, "")] = result

    def groups(self) -> Iterable[tuple[dict[str, str], list[Cell]]]:
        """Yield the lines that are compared with each other, with the labels that they share."""
        groups: dict[Key, tuple[dict[str, str], list[Cell]]] = {}
        for cell in self.study.cells():
            if cell.key in self._runs:
                shared = {c: t for c, t in cell.labels.items() if c not in self.study.compared}
                groups.setdefault(tuple(shared.items()), (shared, []))[1].append(cell)
        return groups.values()

    def values(self, cell: Cell, column: Column) -> list[float]:
        """Return a line's numbers in a column, in its unit."""
        found = (r.number(column.metric) for r in self._runs.get(cell.key, {}).values())
        return [column.scale * number for number in found if number is not None]

    def compare(self, one: Cell, other: Cell, column: Column) -> Paired:
        """Compare two lines over the seeds that both have under the same partition.

        A number that is not finite, of a run that has diverged, has no difference to another.
        """
        numbers = self.both(one, other, column)
        both = [pair for pair in numbers if all(map(math.isfinite, pair))]
        return compare_pairs([a for a, _ in both], [b for _, b in both])

    def both(self, one: Cell, other: Cell, column: Column) -> list[list[float]]:
        """Return the numbers of both lines for each seed that both have; NaN for none."""
        return [
            [math.nan if (n := r.number(column.metric)) is None else column.scale * n for r in pair]
            for pair in self._pairs(one, other)
        ]

    def same(self, one: Cell, other: Cell) -> bool:
        """Return whether two lines are one computation, in all runs that both have."""
        pairs = self._pairs(one, other)
        return bool(pairs) and all((a.made_as or a.name) == (b.made_as or b.name) for a, b in pairs)

    def _pairs(self, one: Cell, other: Cell) -> list[tuple[RunResult, RunResult]]:
        mine, theirs = self._runs.get(one.key, {}), self._runs.get(other.key, {})
        shared = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
        return [(a, b) for a, b in shared if not a.partition or a.partition == b.partition]

    def best(self, cells: Sequence[Cell], column: Column) -> Cell | None:
        """Return the line with the best mean; None where there is no better side, or one line.

        Of a line with fewer seeds than another the mean is over easier or harder ones: it is none.
        """
        better = column.higher_is_better
        values = {cell.key: found for cell in cells if (found := self.values(cell, column))}
        most = max(map(len, values.values()), default=0)
        means = {key: sum(v) / most for key, v in values.items() if len(v) == most}
        means = {key: mean for key, mean in means.items() if math.isfinite(mean)}
        if better is None or len(values) < 2 or not means:
            return None
        key = (max if better else min)(means, key=lambda each: means[each])
        return next(cell for cell in cells if cell.key == key)


def all_comparisons(pairing: Pairing) -> tuple[Comparison, ...]:
    """Return every comparison of two lines of a group, in every column."""
    return tuple(
        Comparison(
            group=shared,
            column=column,
            one=_differing(pairing.study, one),
            other=_differing(pairing.study, other),
            paired=paired,
            same=pairing.same(one, other),
        )
        for shared, cells in pairing.groups()
        for one, other in combinations(cells, 2)
        for column in pairing.study.columns
        if (paired := pairing.compare(one, other, column)).pairs
    )


def marks(pairing: Pairing) -> dict[tuple[Key, str], str]:
    """Return the mark of each line in each column, where more than one seed lets one be set."""
    marked: dict[tuple[Key, str], str] = {}
    for _, cells in pairing.groups():
        for column in pairing.study.columns:
            best = pairing.best(cells, column)
            if best is None:
                continue
            # A line that has not reached a value in some run, or has diverged in it, is worse
            # there, by no known number.
            against = {
                cell.key: pairing.compare(cell, best, column)
                for cell in cells
                if cell != best and all(map(math.isfinite, pairing.values(cell, column)))
            }
            testable = {key: paired for key, paired in against.items() if paired.testable}
            if testable:
                marked[best.key, column.metric] = BEST
            for key, paired in testable.items():
                marked[key, column.metric] = mark(paired)
    return marked


def mark(paired: Paired) -> str:
    """Return how sure the order of two lines is."""
    return TEST if paired.by_test else INTERVAL if paired.by_interval else NOT


def _differing(study: Study, cell: Cell) -> dict[str, str]:
    return {column: text for column, text in cell.labels.items() if column in study.compared}
