"""A study's finished runs, paired by seed, partition and test images."""

from __future__ import annotations

from collections.abc import Callable

from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.gathering import StudyResults
from bfl.experiments.studies.published import Key
from bfl.experiments.studies.run_result import RunResult, short
from bfl.experiments.studies.scale import ScaledStudy
from bfl.experiments.studies.study import SEED, Cell, Run

TEST_DATA = "test"
"""What a result calls the images that it was judged on, among its digests."""


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

    def both(
        self, one: Cell, other: Cell, column: Column, than: Column | None = None
    ) -> list[tuple[float, float]]:
        """Return the numbers of both lines for each seed for which both have one."""
        last = than or column
        pairs = self._pairs(one, other)
        found = [(a.number(column.metric), b.number(last.metric)) for a, b in pairs]
        both = [(a, b) for a, b in found if a is not None and b is not None]
        # A number of a curve has fewer digits than a final one, and shares differ in last bits:
        # what is tied is to stay tied.
        return [(short(column.scale * short(a)), short(last.scale * short(b))) for a, b in both]

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


def _differing_data(one: RunResult, other: RunResult) -> str:
    """Return in what data two runs of a seed are known to differ, so that they are no pair."""
    if one.partition and other.partition and one.partition != other.partition:
        return "partitions"
    tests = one.data.get(TEST_DATA), other.data.get(TEST_DATA)
    return "test images" if all(tests) and tests[0] != tests[1] else ""
