"""Which orders between a study's lines its results carry: paired by seed and partition."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.gathering import StudyResults
from bfl.experiments.studies.paired import FINEST, Paired, compare_pairs
from bfl.experiments.studies.published import Key
from bfl.experiments.studies.resolution import resolution
from bfl.experiments.studies.run_result import RunResult, short
from bfl.experiments.studies.scale import ScaledStudy
from bfl.experiments.studies.study import SEED, Cell, Run, Study

BEST, INTERVAL, TEST, NOT = "best", "interval", "test", "not significant"
TEST_ALONE = "test alone"
"""What a line is marked with: the best of its group; or that it differs from the best by the
interval, by the exact test as well or alone, or that the order is not significant."""

BETTER = {how: f"better by the {how}" for how in (INTERVAL, TEST, TEST_ALONE)}
"""The marks of a line that is better than the best of those with more seeds than it has."""

LEAST_PAIRS = 2
"""Of how many pairs something can be said of an order."""

TEST_DATA = "test"
"""What a result calls the images that it was judged on, among its digests."""


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

    def groups(self) -> Iterable[tuple[Mapping[str, str], list[Cell]]]:
        """Yield the lines that are compared with each other, with the labels that they share."""
        for shared, cells in self.study.groups():
            if found := [cell for cell in cells if cell.key in self._runs]:
                yield shared, found

    def values(self, cell: Cell, column: Column) -> list[float]:
        """Return a line's numbers in a column, in its unit."""
        found = (r.number(column.metric) for r in self.results(cell))
        return [column.scale * number for number in found if number is not None]

    def seeds(self, cell: Cell, column: Column) -> frozenset[str]:
        """Return the seeds for which a line has a number in a column."""
        runs = self._runs.get(cell.key, {}).items()
        return frozenset(seed for seed, r in runs if r.number(column.metric) is not None)

    def compare(self, one: Cell, other: Cell, column: Column, than: Column | None = None) -> Paired:
        """Compare two lines over the seeds that both have under the same partition.

        The other line, which may be the one, is compared in another column if one is given.

        A number that is not finite, of a run that has diverged or has not reached a value, is worse
        than any that is, see ``compare_pairs``; a run that has no such number at all is no pair.
        """
        both = self.both(one, other, column, than)
        mine, theirs = [a for a, _ in both], [b for _, b in both]
        better = column.higher_is_better
        paired = compare_pairs(mine, theirs, higher_is_better=better)
        if not paired.without_width:
            return paired
        step = resolution(column, [*self.results(one), *self.results(other)])
        return compare_pairs(mine, theirs, higher_is_better=better, resolution=step)

    def both(
        self, one: Cell, other: Cell, column: Column, than: Column | None = None
    ) -> list[tuple[float, float]]:
        """Return the numbers of both lines for each seed for which both have one."""
        last = than or column
        pairs = self._pairs(one, other)
        found = [(a.number(column.metric), b.number(last.metric)) for a, b in pairs]
        both = [(a, b) for a, b in found if a is not None and b is not None]
        # A number of a curve has fewer digits than a final one: what is tied is to stay tied.
        both = [(short(a), short(b)) for a, b in both] if than else both
        return [(column.scale * a, last.scale * b) for a, b in both]

    def no_order(self, one: Cell, other: Cell) -> str:
        """Return in words why two lines have too few pairs to be compared."""
        common = self._common(one, other)
        if len(common) < LEAST_PAIRS:
            return "no order without two seeds in common"
        counts = Counter(what for pair in common if (what := _differing_data(*pair)))
        if len(common) - counts.total() < LEAST_PAIRS:
            said = " and ".join(f"the {what} differ in {count}" for what, count in counts.items())
            return f"no order, as {said} of {len(common)} seeds in common"
        return "no order without two seeds in common that have the number"

    def same(self, one: Cell, other: Cell) -> bool:
        """Return whether two lines are one computation, in all runs that both have."""
        pairs = self._pairs(one, other)
        return bool(pairs) and all((a.made_as or a.name) == (b.made_as or b.name) for a, b in pairs)

    def results(self, cell: Cell) -> list[RunResult]:
        """Return a line's finished runs."""
        return list(self._runs.get(cell.key, {}).values())

    def _common(self, one: Cell, other: Cell) -> list[tuple[RunResult, RunResult]]:
        mine, theirs = self._runs.get(one.key, {}), self._runs.get(other.key, {})
        return [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]

    def _pairs(self, one: Cell, other: Cell) -> list[tuple[RunResult, RunResult]]:
        return [pair for pair in self._common(one, other) if not _differing_data(*pair)]

    def best(self, cells: Sequence[Cell], column: Column) -> list[Cell]:
        """Return the lines with the best mean, which are several where they are tied.

        Empty where there is no better side, or one line. Of a line with fewer or other seeds the
        mean is over easier or harder ones, and does not count; nor does one that is not finite.
        So it is also empty where no two lines have the most seeds: one would win without a rival.
        """
        better = column.higher_is_better
        rivals = self.with_most_seeds(cells, column)
        means = {
            cell.key: math.fsum(found) / len(found)
            for cell in rivals
            if all(map(math.isfinite, found := self.values(cell, column)))
        }
        if better is None or len(rivals) < 2 or not means:
            return []
        best = (max if better else min)(means.values())
        return [
            cell
            for cell in cells
            if cell.key in means and math.isclose(means[cell.key], best, rel_tol=FINEST)
        ]

    def with_most_seeds(self, cells: Sequence[Cell], column: Column) -> list[Cell]:
        """Return the lines that have a number for as many seeds as any other has, and the same.

        Of several such sets of seeds it is the one that most lines have; where that is so of two,
        it is the first of their lines alone.
        """
        seeds = [self.seeds(cell, column) for cell in cells]
        ranks = {each: (len(each), seeds.count(each)) for each in seeds if each}
        most = [each for each in ranks if ranks[each] == max(ranks.values())]
        found = [cell for cell, its in zip(cells, seeds, strict=True) if its in most]
        return found if len(most) == 1 else found[:1]

    def against(self, cell: Cell, best: Sequence[Cell], column: Column) -> tuple[Cell, Paired]:
        """Compare a line with those that have the best mean; return the least sure comparison.

        It is of several that are tied, so that which stands first in the file does not matter.
        """
        all_of_them = [(each, self.compare(cell, each, column)) for each in best]
        testable = [pair for pair in all_of_them if pair[1].testable]
        return min(testable or all_of_them, key=lambda pair: _sureness(pair[1]))


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
            others = [cell for cell in cells if cell not in best] if best else []
            against = {cell.key: pairing.against(cell, best, column)[1] for cell in others}
            testable = {key: paired for key, paired in against.items() if paired.testable}
            tied = len(best) > 1 and pairing.compare(best[0], best[1], column).testable
            if testable or tied:
                marked |= {(cell.key, column.metric): BEST for cell in best}
            for key, paired in testable.items():
                how = mark(paired)
                ahead = first_is_better(paired, column)
                marked[key, column.metric] = BETTER.get(how, how) if ahead else how
    return marked


def mark(paired: Paired) -> str:
    """Return how sure the order of two lines is."""
    if paired.by_test:
        return TEST if paired.by_interval else TEST_ALONE
    return INTERVAL if paired.by_interval and not paired.undecided else NOT


def first_is_better(paired: Paired, column: Column) -> bool:
    """Return on which side of a column with a better one the first of two lines is."""
    return (paired.direction > 0) == bool(column.higher_is_better)


def _sureness(paired: Paired) -> tuple[int, float]:
    surest = (NOT, INTERVAL, TEST_ALONE, TEST)
    return surest.index(mark(paired)), -(paired.p_value or 0.0)


def _differing_data(one: RunResult, other: RunResult) -> str:
    """Return in what data two runs of a seed are known to differ, so that they are no pair."""
    if one.partition and other.partition and one.partition != other.partition:
        return "partitions"
    tests = one.data.get(TEST_DATA), other.data.get(TEST_DATA)
    return "test images" if all(tests) and tests[0] != tests[1] else ""


def _differing(study: Study, cell: Cell) -> dict[str, str]:
    return {column: text for column, text in cell.labels.items() if column in study.compared}
