"""A study's table: ours with its spread over the seeds, the published number, the difference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.experiments.results.collapse import MOST_AT_FLOOR
from bfl.experiments.results.environment import PACKAGES
from bfl.experiments.results.table import ABSENT
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.folder import FAILED, StudyFolder
from bfl.experiments.studies.gathering import StudyResults, gather
from bfl.experiments.studies.images import deviation_by_images
from bfl.experiments.studies.run_result import CHANGED, NOT_FOUND, RunResult
from bfl.experiments.studies.scale import ScaledStudy
from bfl.experiments.studies.study import SEED, Cell, Run, Study
from bfl.posteriors.floor import FRACTION_AT_FLOOR

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 3
"""Runs that a note names, at most."""

ENVIRONMENT = ("bfl", *PACKAGES, "processor", "vector-instructions", "git-commit")
"""In what the environments of a table's runs are compared."""

SPREADS = {
    "standard-deviation": "sample standard deviation (n − 1) over the seeds",
    "standard-error": "standard error over the seeds, the sample standard deviation (n − 1) / √n",
}
"""The spreads that a study may have, and what a table says of them."""


@dataclass(frozen=True)
class StudyTable:
    """A study's table.

    Attributes:
        study: The study.
        scale: The reduction in words, or that there is none but the file's own.
        notes: What has to be known to read it, one sentence each; the reduction comes first.
        frame: A row a line, with its labels, ``runs_done``, ``runs`` and ``state``; for each column
            of the study, in its unit, the mean ``METRIC`` and ``METRIC_spread``, ``_by_images``,
            ``_published``, ``_published_spread`` and ``_difference``. None: there is no number;
            NaN: a run has diverged.
        runs: The finished runs with their results.
    """

    study: Study
    scale: str
    notes: tuple[str, ...]
    frame: pd.DataFrame
    runs: tuple[tuple[Run, RunResult], ...]

    def line(self, cell: Cell) -> dict[str, RunResult]:
        """Return the finished runs of a line by their seeds."""
        return {r.labels.get(SEED, ""): result for r, result in self.runs if r.cell.key == cell.key}


def mean_and_spread(values: Sequence[float], spread: str) -> tuple[float | None, float | None]:
    """Return the mean of some numbers and the spread, a key of ``SPREADS``.

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


def study_table(
    folder: StudyFolder,
    scaled: ScaledStudy,
    wanted: Callable[[Run], bool] = lambda _: True,
    places: Sequence[Path] = (),
) -> StudyTable:
    """Return the table of a study as far as its runs are done.

    Args:
        folder: The study's folder.
        scaled: The study.
        wanted: Which runs count; lines without any are left out.
        places: Other folders with results.

    Raises:
        ConfigurationError: A result does not belong to the study as it stands, or two contradict
            each other.
        DataError: A result is corrupt.
    """
    import pandas as pd

    study = scaled.study
    results = gather(folder, scaled.runs, places, wanted)
    runs = [run for run in scaled.runs if wanted(run)]
    lines = [
        _line(study, cell, own, results)
        for cell in study.cells()
        if (own := [run for run in runs if run.cell.key == cell.key])
    ]
    frame = pd.DataFrame(lines, dtype=object)
    finished = tuple((r, results.finished[r.name]) for r in runs if r.name in results.finished)
    table = StudyTable(study, scaled.said, (), frame, finished)
    notes = (*_notes(table, results), *_notes_of_floors(table), *_notes_of_runs(finished))
    return StudyTable(study, scaled.said, notes, frame, finished)


def _line(study: Study, cell: Cell, runs: Sequence[Run], results: StudyResults) -> dict[str, Any]:
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


def _notes(table: StudyTable, results: StudyResults) -> Iterator[str]:
    study, frame = table.study, table.frame
    yield f"{table.scale[:1].upper()}{table.scale[1:]}."
    failed = [name for name, state in results.states.items() if state == FAILED]
    without = f"; failed, and so in no mean or claim: {_listed(failed)}" if failed else ""
    yield f"{frame.runs_done.sum()} of {frame.runs.sum()} runs are done{without}."
    if study.seeds is not None:
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
    """Yield which lines have most of their standard deviations at the floor."""
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
    """Yield what is to be said of single runs: made once for two, without clients, and on what."""
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
    """Yield how many runs cannot be made again as they were, and why."""
    for key, what in (
        (NOT_FOUND, "no history has their commit"),
        (CHANGED, "their code had changes that were not committed"),
    ):
        if count := sum(bool(r.environment.get(key)) for r in finished):
            yield f"{count} of {len(finished)} runs cannot be made again as they were: {what}."


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"{', '.join(texts[:SHOWN])}{more}"


def shown(table: StudyTable) -> pd.DataFrame:
    """Return the table as people read it: each number with its spread, next to the published."""
    columns: dict[str, Any] = {n: table.frame[n] for n in table.study.label_columns}
    lines = table.frame.to_dict("records")
    columns["runs"] = [f"{line['runs_done']} of {line['runs']}" for line in lines]
    for column in table.study.columns:
        columns[column.heading] = [_ours(line, column) for line in lines]
        if column.published:
            metric, digits = column.metric, column.decimals
            columns[f"{column.heading}, published"] = [
                _number(line[f"{metric}_published"], line[f"{metric}_published_spread"], digits)
                for line in lines
            ]
            columns[f"{column.heading}, difference"] = [
                ABSENT if (d := line[f"{metric}_difference"]) is None else f"{d:+.{digits}f}"
                for line in lines
            ]
    import pandas as pd

    return pd.DataFrame(columns)


def _ours(line: Mapping[str, Any], column: Column) -> str:
    ours, images = line[column.metric], line[f"{column.metric}_by_images"]
    if ours is None:  # a run that is done need not have every number
        return ABSENT if line["runs_done"] else str(line["state"])
    text = _number(ours, line[f"{column.metric}_spread"], column.decimals)
    return f"{text} ({images:.{column.decimals}f})" if images else text


def _number(value: float | None, spread: float | None, decimals: int) -> str:
    if value is None:
        return ABSENT
    # Too small for the column: nothing but zeros would be shown, and of the spread as well.
    small = bool(value) and not float(f"{value:.{decimals}f}")
    text, beside = (
        "" if n is None else f"{n:.1e}" if small and n else f"{n:.{decimals}f}"
        for n in (value, spread)
    )
    return f"{text} ± {beside}" if beside else text
