"""A study's table: our numbers with their spread over seeds, published numbers, differences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.evaluation.evaluated_ensemble import of_a_posterior
from bfl.evaluation.metrics import metrics
from bfl.experiments.results.collapse import MOST_AT_FLOOR
from bfl.experiments.results.environment import PACKAGES
from bfl.experiments.studies.columns import Column, curve_of
from bfl.experiments.studies.folder import FAILED
from bfl.experiments.studies.gathering import OpenedStudy, StudyResults
from bfl.experiments.studies.run_result import CHANGED, COMMIT, NOT_FOUND, RunResult
from bfl.experiments.studies.study import SEED, Choice, Run, Study
from bfl.posteriors.posterior import FRACTION_AT_FLOOR

if TYPE_CHECKING:
    import pandas as pd

LISTED = 3
"""The most runs that a note names."""

ENVIRONMENT = ("bfl", *PACKAGES, "processor", "vector-instructions", COMMIT)
"""Keys of the runs' environments whose differences a note reports."""

SPREADS = {
    "standard-deviation": "sample standard deviation (n − 1) over the seeds",
    "standard-error": "standard error over the seeds, the sample standard deviation (n − 1) / √n",
}
"""Descriptions of the spreads that a study may have."""

MOST_IMAGES = 100_000
"""The largest test set for which an accuracy's step is found."""

ROUNDING = 5e-7
"""The greatest relative distance from a multiple of a step, as curves have seven digits."""


@dataclass(frozen=True)
class StudyTable:
    """A study's table.

    Attributes:
        scale: The scale in words, see ``Study.said``.
        notes: Notes on the table, one sentence each, the scale first.
        frame: A row for each line, with its labels, ``runs_done``, ``runs`` and ``state``; for each
            column of the study, in its unit, the mean ``METRIC`` and ``METRIC_spread``,
            ``_by_images``, ``_published``, ``_published_spread`` and ``_difference``. A missing
            number is None, and a diverged run's number is NaN.
    """

    study: Study
    scale: str
    notes: tuple[str, ...]
    frame: pd.DataFrame
    runs: tuple[tuple[Run, RunResult], ...]

    def line(self, cell: Choice) -> dict[str, RunResult]:
        """Return a line's finished runs by seed."""
        return {r.labels.get(SEED, ""): result for r, result in self.runs if r.cell.key == cell.key}

    @property
    def by_run(self) -> pd.DataFrame:
        """The finished runs, a row each: labels, metrics, columns' numbers, and origin."""
        import pandas as pd

        names = {name for _, result in self.runs for name in result.metrics}
        names |= {column.metric for column in self.study.columns}
        rows = [
            {
                **run.labels,
                **{name: result.number(name) for name in sorted(names)},
                "rounds": result.number_of_rounds,
                "seconds": result.seconds,
                "made_as": result.made_as,
                "commit": result.environment.get(COMMIT, ""),
                "processor": result.environment.get("processor", ""),
                "scale": self.scale,
            }
            for run, result in self.runs
        ]
        return pd.DataFrame(rows, dtype=object)


def mean_and_spread(values: Sequence[float], spread: str) -> tuple[float | None, float | None]:
    """Return the mean and the spread of some numbers; ``spread`` is a key of ``SPREADS``.

    Example:
        >>> mean_and_spread([1.0, 3.0], "standard-error")
        (2.0, 1.0)
        >>> mean_and_spread([1.0], "standard-error"), mean_and_spread([], "standard-error")
        ((1.0, None), (None, None))
    """
    if not values:
        return None, None
    mean = math.fsum(values) / len(values)
    if len(values) == 1 or not math.isfinite(mean):
        return mean, None
    deviation = float(np.std(values, ddof=1))
    return mean, deviation / math.sqrt(len(values)) if spread == "standard-error" else deviation


def study_table(opened: OpenedStudy) -> StudyTable:
    """Return the table of a study's finished runs; lines without a selected run are left out.

    Raises:
        ConfigurationError: A result's configuration differs from the study's, or two results
            contradict each other.
        DataError: A result is corrupt.
    """
    import pandas as pd

    study = opened.study
    results = opened.results
    by_cell: dict[Any, list[Run]] = {}
    for run in opened.runs:
        by_cell.setdefault(run.cell.key, []).append(run)
    lines = [
        _line(study, cell, by_cell[cell.key], results)
        for cell in study.cells()
        if cell.key in by_cell
    ]
    frame = pd.DataFrame(lines, dtype=object)
    done = [run for run in opened.runs if run.name in results.finished]
    finished = tuple((run, results.finished[run.name]) for run in done)
    table = StudyTable(study, study.said, (), frame, finished)
    notes = (*_notes(table, results), *_notes_of_floors(table), *_notes_of_runs(finished))
    return replace(table, notes=notes)


def _line(study: Study, cell: Choice, runs: Sequence[Run], results: StudyResults) -> dict[str, Any]:
    done = [results.finished[run.name] for run in runs if run.name in results.finished]
    states = [results.states[run.name] for run in runs if run.name not in results.finished]
    line: dict[str, Any] = {name: cell.labels[name] for name in study.label_columns}
    line |= {"runs_done": len(done), "runs": len(runs), "state": ", ".join(dict.fromkeys(states))}
    for column in study.columns:
        numbers = [n for result in done if (n := result.number(column.metric)) is not None]
        ours, spread = mean_and_spread([column.scale * n for n in numbers], study.spread)
        published, of_published = None, None
        if study.published is not None and cell.published:
            published, of_published = study.published.entry(cell.key, column.metric)
        line |= {
            column.metric: ours,
            f"{column.metric}_spread": spread,
            f"{column.metric}_by_images": deviation_by_images(
                column, done, results.finished.values()
            ),
            f"{column.metric}_published": published,
            f"{column.metric}_published_spread": of_published,
            f"{column.metric}_difference": None
            if ours is None or published is None
            else ours - published,
        }
    return line


# Standard errors by the test images ---------------------------------------------------------------


def deviation_by_images(
    column: Column, results: Collection[RunResult], others: Iterable[RunResult] = ()
) -> float | None:
    """Return the binomial standard error of a share of the test images, in the column's unit.

    Averaging over seeds does not reduce it, as all are evaluated on the same images. Results do not
    keep the number of images. It is taken to be the smallest number whose shares include the
    numbers of all rounds of all runs that are evaluated on these images.

    Args:
        column: A column; the result is None if its numbers are not shares.
        results: Finished runs evaluated on the same images.
        others: Further runs; those evaluated on the same images are used.
    """
    name = curve_of(of_a_posterior(column.metric))
    if name not in metrics.names() or not metrics.get(name).share_of_examples:
        return None
    curve = curve_of(column.metric)
    finals = [n for r in results if (n := r.number(column.metric)) is not None]
    images = {_images(r) for r in results}
    alike = [*results, *(r for r in others if images == {_images(r)})]
    rounds = [row[curve] for r in alike for row in r.rounds if row.get(curve) is not None]
    rounds += [n for r in alike if (n := r.number(curve)) is not None]
    if not finals or not all(map(math.isfinite, finals)):
        return None
    share = math.fsum(finals) / len(finals)
    step = share_step(frozenset((*finals, *rounds)))
    return column.scale * math.sqrt(share * (1.0 - share) * step) if step else None


def _images(result: RunResult) -> tuple[str, ...]:
    """Return the settings that determine a run's test images."""
    return tuple(str(result.configuration.get(key)) for key in ("dataset", "test-examples"))


@lru_cache(maxsize=64)  # all lines of a table ask for the same numbers
def share_step(numbers: frozenset[float]) -> float:
    """Return 1/m for the smallest m such that all numbers are multiples of 1/m; 0 if there is none.

    Example:
        >>> share_step(frozenset({0.25, 0.5})), share_step(frozenset({347 / 360, 0.9722222}))
        (0.25, 0.002777777777777778)
    """
    images = np.arange(1, MOST_IMAGES + 1, dtype=np.float64)
    for number in filter(math.isfinite, numbers):
        right = number * images
        images = images[np.abs(right - np.rint(right)) <= ROUNDING * np.abs(right)]
    return 1.0 / float(images[0]) if images.size else 0.0


# Notes -------------------------------------------------------------------------------------------


def _notes(table: StudyTable, results: StudyResults) -> Iterator[str]:
    study, frame = table.study, table.frame
    yield f"{table.scale[:1].upper()}{table.scale[1:]}."
    failed = [name for name, state in results.states.items() if state == FAILED]
    without = f"; failed, and so in no mean or claim: {_listed(failed)}" if failed else ""
    yield f"{frame.runs_done.sum()} of {frame.runs.sum()} runs are done{without}."
    if SEED in study.axes:
        yield f"Ours ± {SPREADS[study.spread]}."
    if study.published is not None:
        yield "Published ± the spread that the paper gives; difference: ours − published."
        yield from study.published.notes
    ours = [n for n in frame[[c.metric for c in study.columns]].to_numpy().ravel() if n is not None]
    if math.inf in ours:
        yield "inf: a run has not reached the value, or its number is infinite."
    if any(map(math.isnan, ours)):
        yield "nan: a run has diverged."
    if frame[[f"{c.metric}_by_images" for c in study.columns]].any(axis=None):
        yield "In parentheses: the standard error by the test images (binomial), of one run."


def _notes_of_floors(table: StudyTable) -> Iterator[str]:
    """Yield a note on lines with most of their standard deviations at the floor."""
    told = []
    for cell in table.study.cells():
        line = table.line(cell).values()
        shares = [n for r in line if (n := r.number(FRACTION_AT_FLOOR)) is not None]
        if shares and (mean := math.fsum(shares) / len(shares)) > MOST_AT_FLOOR:
            labels = " ".join(cell.labels[name] for name in table.study.label_columns)
            told.append(f"{labels} {mean:.0%} of the standard deviations at scale-floor")
    if told:
        yield f"In the last evaluated round, of seeds on average: {'; '.join(told)}."


def _notes_of_runs(runs: Iterable[tuple[Run, RunResult]]) -> Iterator[str]:
    """Yield notes on copied runs, on lost clients, and on different environments."""
    finished = [result for _, result in runs]
    if same := [f"{r.name} = {r.made_as}" for r in finished if r.made_as]:
        yield f"Runs that are one computation are made once: {_listed(same)}."
    short_of = [
        f"{r.name} ({', '.join(f'{count} {name}' for name, count in r.lost.items())})"
        for r in finished
        if r.lost
    ]
    if short_of:
        yield (
            "Rounds have gone on without clients that failed or were refused, counted over all "
            f"rounds: {_listed(short_of)}."
        )
    yield from notes_of_origin(finished)
    for name in ENVIRONMENT:
        found = Counter(str(r.environment.get(name)) for r in finished)
        if len(found) > 1:
            told = ", ".join(f"{value} ({count} runs)" for value, count in found.items())
            yield f"Runs differ in {name}: {told}."


def notes_of_origin(finished: Sequence[RunResult]) -> Iterator[str]:
    """Yield notes on the runs that cannot be reproduced, with the reason."""
    for key, what in (
        (NOT_FOUND, "no history has their commit"),
        (CHANGED, "their code had changes that were not committed"),
    ):
        if count := sum(bool(r.environment.get(key)) for r in finished):
            yield f"{count} of {len(finished)} runs cannot be made again as they were: {what}."


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return f"{', '.join(texts[:LISTED])}{more}"
