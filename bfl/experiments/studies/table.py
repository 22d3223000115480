"""A study's table: ours with its spread over the seeds, the published number, the difference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bfl.experiments.results.collapse import MOST_AT_FLOOR
from bfl.experiments.results.environment import PACKAGES
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.comparisons import Pairing
from bfl.experiments.studies.folder import FAILED, StudyFolder
from bfl.experiments.studies.gathering import StudyResults, gather
from bfl.experiments.studies.images import deviation_by_images
from bfl.experiments.studies.published import Entry, Key, PublishedTable
from bfl.experiments.studies.run_result import CHANGED, NOT_FOUND, RunResult
from bfl.experiments.studies.scale import ScaledStudy
from bfl.experiments.studies.study import Cell, Run
from bfl.posteriors.floor import FRACTION_AT_FLOOR

SHOWN = 3
"""Runs that a note names, at most."""

COMPARED_ENVIRONMENT = ("bfl", *PACKAGES, "processor", "vector-instructions", "git-commit")
"""In what the environments of a table's runs are compared."""

SOURCES_LOST = {
    NOT_FOUND: "no history has their commit",
    CHANGED: "their code had changes that were not committed",
}
"""What is said of results whose code is not to be had."""

SPREADS: dict[str, str] = {
    "standard-deviation": "sample standard deviation (n − 1) over the seeds",
    "standard-error": "standard error over the seeds, the sample standard deviation (n − 1) / √n",
}
"""What a study may take for the spread of its numbers, and what a table says of it."""


IMAGES = "In parentheses: the standard error by the test images (binomial), of one run."
"""What a further number of accuracies means."""


@dataclass(frozen=True)
class Compared:
    """A number of ours beside the published one, both in the column's unit.

    Attributes:
        ours: The mean over the seeds that are done; None: none is.
        ours_spread: Its spread; None with fewer than two seeds.
        published: The published number; None: there is none.
        published_spread: Its spread; None: not published.
        by_images: The standard error of a run's share by the test images; None: it is none.
    """

    ours: float | None
    ours_spread: float | None
    published: float | None
    published_spread: float | None
    by_images: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours minus the published one; None where one of them is missing."""
        if self.ours is None or self.published is None:
            return None
        return self.ours - self.published


@dataclass(frozen=True)
class Line:
    """One line of a table.

    Attributes:
        labels: What it is about, by column.
        done: How many of its runs are done.
        runs: How many it has.
        state: Where those stand that are not done, in words; empty: all are done.
        numbers: A comparison for each of the study's columns.
        failed: How many of its runs have failed.
    """

    labels: Mapping[str, str]
    done: int
    runs: int
    state: str
    numbers: tuple[Compared, ...]
    failed: int = 0


@dataclass(frozen=True)
class SeedRow:
    """One finished run.

    Attributes:
        labels: What it is, by column, with the seed's.
        result: What it has given.
    """

    labels: Mapping[str, str]
    result: RunResult


@dataclass(frozen=True)
class StudyTable:
    """A study's table.

    Attributes:
        title: What it is.
        notes: What has to be known to read it, one sentence each; the reduction comes first.
        scale: The reduction in words, or that there is none but the file's own.
        label_columns: The columns of labels.
        columns: The columns of numbers.
        lines: The lines.
        pairing: Compares its lines.
        seeds: The finished runs.
        compared: The label columns whose lines are compared; the others make the groups.
    """

    title: str
    notes: tuple[str, ...]
    scale: str
    label_columns: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    pairing: Pairing
    seeds: tuple[SeedRow, ...] = ()
    compared: tuple[str, ...] = ()


def mean_and_spread(values: Sequence[float], spread: str) -> tuple[float | None, float | None]:
    """Return the mean of some numbers and the spread, a key of ``SPREADS``.

    Example:
        >>> mean_and_spread([1.0, 3.0], "standard-deviation")
        (2.0, 1.4142135623730951)
        >>> mean_and_spread([1.0], "standard-error"), mean_and_spread([], "standard-error")
        ((1.0, None), (None, None))
    """
    count = len(values)
    if not count:
        return None, None
    mean = math.fsum(values) / count
    if count == 1 or not math.isfinite(mean):
        return mean, None
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return mean, deviation / math.sqrt(count) if spread == "standard-error" else deviation


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
    study = scaled.study
    results = gather(folder, scaled.runs, places, wanted)
    pairing = Pairing(results, scaled, wanted)
    runs: dict[Key, list[Run]] = {}
    for run in scaled.runs:
        if wanted(run):
            runs.setdefault(run.cell.key, []).append(run)
    lines = [
        _line(results, scaled, cell, runs[cell.key]) for cell in study.cells() if cell.key in runs
    ]
    return StudyTable(
        title=study.title,
        notes=(
            *_notes(scaled, lines),
            *_notes_of_floors(pairing, lines),
            *_notes_of_runs(scaled, results),
        ),
        scale=scaled.said,
        label_columns=study.label_columns,
        columns=study.columns,
        lines=tuple(lines),
        pairing=pairing,
        seeds=tuple(
            SeedRow(run.labels, results.finished[run.name])
            for run in scaled.runs
            if run.name in results.finished
        ),
        compared=study.compared,
    )


def _line(
    results: StudyResults,
    scaled: ScaledStudy,
    cell: Cell,
    runs: Sequence[Run],
) -> Line:
    study = scaled.study
    done = [run for run in runs if run.name in results.finished]
    finished = [results.finished[run.name] for run in done]
    states = [results.states[run.name] for run in runs if run not in done]
    numbers = []
    for column in study.columns:
        values = [
            column.scale * float(number)
            for result in finished
            if (number := result.number(column.metric)) is not None
        ]
        ours, spread = mean_and_spread(values, study.spread)
        published = _published(study.published, cell, column)
        images = deviation_by_images(column, finished)
        numbers.append(Compared(ours, spread, published.value, published.spread, images))
    return Line(
        labels={column: cell.labels[column] for column in study.label_columns},
        done=len(done),
        runs=len(runs),
        state=", ".join(dict.fromkeys(states)),
        numbers=tuple(numbers),
        failed=states.count(FAILED),
    )


def _published(table: PublishedTable | None, cell: Cell, column: Column) -> Entry:
    if table is None or not cell.published:
        return Entry(None, None)
    return table.entry(cell.key, column.metric)


def _notes_of_floors(pairing: Pairing, lines: Sequence[Line]) -> Iterator[str]:
    """Yield which lines have most of their standard deviations at the floor."""
    said = [
        f"{' '.join(line.labels.values())} {mean:.0%} of the standard deviations at scale-floor"
        for line in lines
        if (mean := _share_at_floor(pairing.results(Cell(line.labels)))) > MOST_AT_FLOOR
    ]
    if said:
        yield f"In the last evaluated round, of seeds on average: {'; '.join(said)}."


def _share_at_floor(results: Sequence[RunResult]) -> float:
    """Return the mean share of a line's standard deviations that pooling has set to the floor.

    The epistemic part of predictions is then the floor's: above rounding noise, and no knowledge.
    """
    shares = [share for r in results if (share := r.number(FRACTION_AT_FLOOR)) is not None]
    return math.fsum(shares) / len(shares) if shares else 0.0


def _notes_of_runs(scaled: ScaledStudy, results: StudyResults) -> Iterator[str]:
    """Yield what is to be said of single runs: made once for two, without clients, and on what."""
    finished = [results.finished[run.name] for run in scaled.runs if run.name in results.finished]
    same = [result for result in finished if result.made_as]
    if same:
        shown = ", ".join(f"{result.name} = {result.made_as}" for result in same[:SHOWN])
        more = f" and {len(same) - SHOWN} more" if len(same) > SHOWN else ""
        yield f"Runs that are one computation are made once: {shown}{more}."
    short_of = [
        f"{result.name} ({', '.join(f'{count} {name}' for name, count in result.lost.items())})"
        for result in finished
        if result.lost
    ]
    if short_of:
        more = f" and {len(short_of) - SHOWN} more" if len(short_of) > SHOWN else ""
        yield (
            "Rounds have gone on without clients that failed or were refused, counted over all "
            f"rounds: {', '.join(short_of[:SHOWN])}{more}."
        )
    for key, what in SOURCES_LOST.items():
        count = sum(bool(result.environment.get(key)) for result in finished)
        if count:
            yield f"{count} of {len(finished)} runs cannot be made again as they were: {what}."
    for name in COMPARED_ENVIRONMENT:
        found = Counter(str(result.environment.get(name)) for result in finished)
        if len(found) > 1:
            said = ", ".join(f"{value} ({count} runs)" for value, count in found.items())
            yield f"Runs differ in {name}: {said}."


def _notes(scaled: ScaledStudy, lines: Sequence[Line]) -> tuple[str, ...]:
    done, runs = sum(line.done for line in lines), sum(line.runs for line in lines)
    failed = ", ".join(
        f"{' '.join(line.labels.values())} in {line.failed} of {line.runs}"
        for line in lines
        if line.failed
    )
    without = f"; failed, and so in no mean or order: {failed}" if failed else ""
    notes = [
        f"{scaled.said[:1].upper()}{scaled.said[1:]}.",
        f"{done} of {runs} runs are done{without}.",
    ]
    if scaled.study.seeds is not None:
        notes.append(f"Ours ± {SPREADS[scaled.study.spread]}.")
    if scaled.study.published is not None:
        notes.append("Published ± the spread that the paper gives; difference: ours − published.")
        notes += scaled.study.published.notes
    if any(math.inf == number.ours for line in lines for number in line.numbers):
        notes.append("inf: a run has not reached the value, or its number is infinite.")
    if any(math.isnan(number.ours or 0.0) for line in lines for number in line.numbers):
        notes.append("nan: a run has diverged.")
    if any(number.by_images for line in lines for number in line.numbers):
        notes.append(IMAGES)
    return tuple(notes)
