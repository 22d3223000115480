"""A study's table: our numbers with their spread over seeds, published numbers, differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.experiments.results.table import ABSENT, markdown_table
from bfl.experiments.studies.results import (
    CHANGED,
    FAILED,
    IMAGES,
    LOST,
    NOT_FOUND,
    OpenedStudy,
    StudyResults,
)
from bfl.experiments.studies.study import SEED, Choice, Study
from bfl.texts import few

if TYPE_CHECKING:
    import pandas as pd

SPREADS = {
    "standard-deviation": "sample standard deviation (n − 1) over the seeds",
    "standard-error": "standard error over the seeds, the sample standard deviation (n − 1) / √n",
}


@dataclass(frozen=True)
class StudyTable:
    """A study's table.

    Attributes:
        notes: Notes on the table, one sentence each.
        lines: A row a line of the table, with its labels, ``runs_done``, ``runs`` and ``state``;
            for each column of the study, in its unit, the mean ``METRIC`` and ``METRIC_spread``,
            ``_by_images``, ``_published``, ``_published_spread`` and ``_difference``. A missing
            number is None, and a diverged run's number is NaN.
    """

    study: Study
    results: StudyResults
    notes: tuple[str, ...]
    lines: pd.DataFrame

    def seeds(self, cell: Choice) -> dict[str, str]:
        """Return the names of a line's finished runs, by seed."""
        done = self.results.frame.index
        runs = [run for run in self.study.runs if run.cell.key == cell.key and run.name in done]
        return {run.labels.get(SEED, ""): run.name for run in runs}


def mean_and_spread(values: Sequence[float], spread: str) -> tuple[float | None, float | None]:
    """Return the mean and the spread of some numbers, if any; ``spread``: see ``SPREADS``.

    Example:
        >>> mean_and_spread([1.0, 3.0], "standard-error"), mean_and_spread([1.0], "")
        ((2.0, 1.0), (1.0, None))
    """
    if not len(values):
        return None, None
    mean = math.fsum(values) / len(values)
    if len(values) == 1 or not math.isfinite(mean):
        return mean, None
    deviation = float(np.std(values, ddof=1)) if len({*values}) > 1 else 0.0
    return mean, deviation / math.sqrt(len(values)) if spread == "standard-error" else deviation


def study_table(opened: OpenedStudy) -> StudyTable:
    """Return the table of a study's finished runs; lines without a selected run are left out."""
    import pandas as pd

    study, results = opened.study, opened.results
    by_cell: dict[Any, list[str]] = {}
    for run in opened.runs:
        by_cell.setdefault(run.cell.key, []).append(run.name)
    numbers = {column.metric: results.numbers(column.metric) for column in study.columns}
    lines = []
    for cell in (cell for cell in study.cells() if cell.key in by_cell):
        names = by_cell[cell.key]
        done = [name for name in names if name in results.frame.index]
        states = dict.fromkeys(results.states[name] for name in names if name in results.states)
        line: dict[str, Any] = {name: cell.labels[name] for name in study.label_columns}
        line |= {"runs_done": len(done), "runs": len(names), "state": ", ".join(states)}
        for column in study.columns:
            of_runs = numbers[column.metric]
            values = [float(of_runs[name]) for name in done if name in of_runs]
            ours, spread = mean_and_spread([column.scale * n for n in values], study.spread)
            by_images = None
            if column.share_of_examples and values and all(map(math.isfinite, values)):
                # The binomial standard error of a share of the test images. Averaging over seeds
                # does not reduce it, as all are evaluated on the same images.
                share = math.fsum(values) / len(values)
                images = results.frame[IMAGES][done].min()
                error = column.scale * math.sqrt(share * (1.0 - share) / images)
                by_images = None if math.isnan(error) else error
            published, of_published = None, None
            if study.published is not None and cell.published:
                published, of_published = study.published.entry(cell.key, column.metric)
            line |= {
                column.metric: ours,
                f"{column.metric}_spread": spread,
                f"{column.metric}_by_images": by_images,
                f"{column.metric}_published": published,
                f"{column.metric}_published_spread": of_published,
                f"{column.metric}_difference": None
                if ours is None or published is None
                else ours - published,
            }
        lines.append(line)
    frame = pd.DataFrame(lines, dtype=object)
    return StudyTable(study, results, tuple(_notes(study, results, frame)), frame)


def _notes(study: Study, results: StudyResults, lines: pd.DataFrame) -> Iterator[str]:
    failed = [name for name, state in results.states.items() if state == FAILED]
    without = f"; failed, and so in no mean or claim: {few(failed, 3)}" if failed else ""
    yield f"{lines.runs_done.sum()} of {lines.runs.sum()} runs are done{without}."
    if SEED in study.axes:
        yield f"Ours ± {SPREADS[study.spread]}."
    if study.published is not None:
        yield "Published ± the spread that the paper gives; difference: ours − published."
        yield from study.published.notes
    ours = [n for n in lines[[c.metric for c in study.columns]].to_numpy().ravel() if n is not None]
    if math.inf in ours:
        yield "inf: a run has not reached the value, or its number is infinite."
    if any(map(math.isnan, ours)):
        yield "nan: a run has diverged."
    if lines[[f"{c.metric}_by_images" for c in study.columns]].any(axis=None):
        yield "In parentheses: the standard error by the test images (binomial), of one run."
    lost = []
    for name, counts in results.frame.filter(LOST).fillna(0).iterrows():
        if found := [f"{count:.0f} {kind}" for kind, count in counts.items() if count]:
            lost.append(f"{name} ({', '.join(found)})")
    if lost:
        yield (
            "Rounds have gone on without clients that failed or were refused, counted over all "
            f"rounds: {few(lost, 3)}."
        )
    yield from notes_of_origin([results])


def notes_of_origin(every: Iterable[StudyResults]) -> Iterator[str]:
    """Yield notes on the runs of studies that cannot be reproduced, with the reason."""
    frames = [results.frame for results in every]
    whys = ("no history has their commit", "their code had changes that were not committed")
    for key, what in zip((NOT_FOUND, CHANGED), whys, strict=True):
        if count := sum((f[key] == "True").sum() for f in frames if key in f):
            total = sum(map(len, frames))
            yield f"{count} of {total} runs cannot be made again as they were: {what}."


def as_text(table: StudyTable) -> pd.DataFrame:
    """Return the table as text: each number with its spread, next to the published one."""
    import pandas as pd

    lines = table.lines.to_dict("records")
    columns: dict[str, Any] = {n: table.lines[n] for n in table.study.label_columns}
    columns["runs"] = [f"{line['runs_done']} of {line['runs']}" for line in lines]
    for column in table.study.columns:
        metric, digits = column.metric, column.decimals
        ours = []
        for line in lines:
            text = number_as_text(line[metric], digits, line[f"{metric}_spread"])
            if line[metric] is None and not line["runs_done"]:
                text = str(line["state"])  # a finished run need not have every number
            images = line[f"{metric}_by_images"]
            ours.append(f"{text} ({number_as_text(images, digits)})" if images else text)
        columns[column.heading] = ours
        if column.published:
            columns[f"{column.heading}, published"] = [
                number_as_text(
                    line[f"{metric}_published"], digits, line[f"{metric}_published_spread"]
                )
                for line in lines
            ]
            columns[f"{column.heading}, difference"] = [
                number_as_text(line[f"{metric}_difference"], digits, sign="+") for line in lines
            ]
    return pd.DataFrame(columns)


def number_as_text(
    value: float | None, decimals: int, spread: float | None = None, sign: str = ""
) -> str:
    """Return a number, with its spread if known, with some decimals; not all zeros if small."""
    if value is None or (sign and math.isnan(value)):
        return ABSENT

    def zeros(n: float) -> bool:
        """Tell if the decimals of a number that is not 0 are; a difference may be by rounding."""
        return abs(n) > (1e-12 if sign else 0.0) and not float(f"{n:.{decimals}f}")

    return " ± ".join(
        f"{n:{sign}.1e}" if n and (zeros(n) or zeros(value)) else f"{n:{sign}.{decimals}f}"
        for n in (value, spread)
        if n is not None
    )


def markdown(table: StudyTable) -> str:
    """Return the table as Markdown, with its title and notes."""
    frame = as_text(table)
    text = markdown_table(frame, len(frame.columns) - len(table.study.label_columns))
    return f"# {table.study.title}\n\n{' '.join(table.notes)}\n\n{text}"
