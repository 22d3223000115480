"""Comparison of the runs of a folder or a study: states, differing keys and curves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from textwrap import wrap
from typing import Any

from bfl.errors import BflError, DataError
from bfl.evaluation.regression import ERROR
from bfl.experiments.results.environment import STARTED
from bfl.experiments.results.figures.style import (
    drawable,
    finite_points,
    label_panels,
    look_of,
    new_figure,
    percent_axis,
    png,
    styled,
    whole_numbers,
)
from bfl.experiments.results.identity import LOCK
from bfl.experiments.results.run_folder import CONFIG, ENVIRONMENT, RunFolder
from bfl.experiments.results.summary import retained
from bfl.experiments.results.table import ABSENT
from bfl.experiments.run.resume import FREE_TO_CHANGE
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import study_in
from bfl.experiments.studies.run_result import RunResult, result_of


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that affect the result and differ, in the order of the configurations.

    A key that one configuration lacks, such as one of an older version, differs.
    """
    keys = dict.fromkeys(key for config in configs for key in config if key not in FREE_TO_CHANGE)
    return [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]


def said(value: Any) -> str:
    """Return a configuration's value as text for a table or a legend.

    Example:
        >>> [said(value) for value in (0.001, True, "iid", None)]
        ['0.001', 'true', 'iid', '–']
    """
    if value is None:
        return ABSENT
    return str(value).lower() if isinstance(value, bool) else str(value)


def labels(names: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the runs' labels for a legend: their differing values or, if equal, their names.

    Example:
        >>> labels(["a", "b"], [{"rounds": 3, "seed": 0}, {"rounds": 3, "seed": 1}])
        ['seed 0', 'seed 1']
    """
    keys = differing_keys(configs)
    told = [" · ".join(f"{key} {said(config.get(key))}" for key in keys) for config in configs]
    return list(names) if len(set(told)) < len(told) else told


@dataclass(frozen=True)
class ListedRun:
    """A run of a folder or a study; reading a corrupt file of it raises DataError.

    Attributes:
        name: Its name, or its path relative to a folder of several runs.
        folder: Its folder, which a study's run may lack: it is missing or was made elsewhere.
        failed: Whether a study's run has failed.
        kept: The result of a study's run that was made elsewhere; None: there is none.
    """

    name: str
    folder: RunFolder
    failed: bool = False
    kept: RunResult | None = None

    @property
    def has_begun(self) -> bool:
        """True if the run has a folder or a result."""
        return self.kept is not None or self.folder.holds(CONFIG)

    @cached_property
    def result(self) -> RunResult:
        """The result so far."""
        return self.kept or result_of(self.folder, self.name)

    def began(self) -> tuple[bool, str]:
        """Return what sorts runs by when they began: those that have not, after all others."""
        if self.kept is not None:
            return False, str(self.kept.environment.get(STARTED, ""))
        if not self.has_begun:
            return True, ""
        with suppress(DataError):  # its own line says so
            if started := self.folder.read_json(ENVIRONMENT, {}).get(STARTED):
                return False, str(started)
        written = (self.folder.path / CONFIG).stat().st_mtime  # of an older version
        return False, datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds")

    def state(self) -> str:
        """Return the run's state in words: finished, running, stopped, failed or missing."""
        if not self.has_begun:
            return "failed" if self.failed else "missing"
        if self.result.over:
            return "finished"
        rounds = self.folder.rounds()
        where = f"round {rounds[-1]['round'] if rounds else 0} of {self.result.number_of_rounds}"
        if is_written_to(self.folder.path):
            return f"running, {where}"
        return f"{'failed' if self.failed else 'stopped'} at {where}"


def runs_in(path: Path, left_out: dict[str, BflError] | None = None) -> list[ListedRun]:
    """Return the runs of a folder: a study, a folder of runs, or a single run.

    Args:
        left_out: Gets the errors of unreadable studies, by name, if other runs can be read; None:
            an unreadable study raises.

    Raises:
        DataError: The folder does not exist or has no run.
        ConfigurationError: A study names a plugin that the user has not named.
    """
    if not path.is_dir():
        raise DataError(f"there is no folder {path}")
    unread: dict[str, BflError] = {}
    found = list(_runs(path, unread))
    for error in unread.values():
        if left_out is None or not found:
            raise error
    if left_out is not None:
        left_out.update(unread)
    if not found:
        raise DataError(f"there is no run in {path}")
    return found


def _runs(top: Path, unread: dict[str, BflError]) -> Iterator[ListedRun]:
    """Yield the runs below a folder; runs do not contain runs."""
    if RunFolder(top).holds(CONFIG):
        yield ListedRun(top.resolve().name, RunFolder(top))
        return
    for parent, names, _ in os.walk(top):
        folder = Path(parent)
        relative = folder.relative_to(top).as_posix()
        names[:] = sorted(name for name in names if not name.startswith("."))
        study = StudyFolder(folder)
        results = study.results()
        if study.holds_study() or results:
            names.clear()
            try:
                yield from _study_runs(study, results, "" if relative == "." else f"{relative}/")
            except BflError as error:
                unread[relative] = error
        elif RunFolder(folder).holds(CONFIG):
            names.clear()
            yield ListedRun(relative, RunFolder(folder))


def _study_runs(
    study: StudyFolder, results: dict[str, RunResult], prefix: str
) -> Iterator[ListedRun]:
    """Yield all runs of a study, begun or not; without a study, those that have a result."""
    names = [run.name for run in study_in(study).runs()] if study.holds_study() else list(results)
    for name in names:
        folder = study.run(name)
        elsewhere = None if folder.holds(CONFIG) else results.get(name)
        yield ListedRun(prefix + name, folder, study.failure_file(name).is_file(), elsewhere)


def chosen_runs(paths: Sequence[Path]) -> list[ListedRun]:
    """Return the runs that have begun, of folders of a run, runs, a study or results.

    Raises:
        DataError: A folder has none, or one run is given twice.
    """
    chosen: list[ListedRun] = []
    for path in paths:
        begun = [run for run in runs_in(path) if run.has_begun]
        if not begun:
            raise DataError(f"no run in {path} has begun")
        chosen += begun
    places = [run.folder.path.resolve() for run in chosen]
    for place in places:
        if places.count(place) > 1:
            raise DataError(f"the run {place} is given twice")
    return chosen


def row(run: ListedRun, keys: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    """Return a run as a row of a table: name, state, some keys, some metrics.

    The state of a run with corrupt files is the error.
    """
    try:
        found = run.result if run.has_begun else None
        shown = {key: said(found and found.configuration.get(key)) for key in keys}
        values = {name: found.metrics.get(name) if found else None for name in metrics}
        return {"run": run.name, "state": run.state(), **shown, **values}
    except BflError as error:
        return {"run": run.name, "state": f"unreadable: {error}"}


def is_written_to(folder: Path) -> bool:
    """Return whether a process holds the lock of a run's folder; False if that is unknown."""
    try:
        import fcntl

        with (folder / LOCK).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # Windows; no such file; a file system without locks
        return False
    return False


ACCURACY = "accuracy"
LIKELIHOOD = "negative-log-likelihood"
BY = "predictive-entropy"
FEW_ROUNDS = 30
CHARACTERS = 90
"""The most characters in a line of the legend."""

Points = Sequence[tuple[float, float]]


def overlay(runs: Mapping[str, RunResult]) -> bytes | None:
    """Return a PNG of learning curves and retention curves of runs; None without any curve.

    Raises:
        DataError: A file of a run is corrupt.
    """
    curves = list(map(curves_of, runs.values()))
    if not any(map(any, curves)):
        return None
    names = ["\n".join(wrap(drawable(name), CHARACTERS)) for name in runs]
    with styled():
        lines = sum(len(wrap(name, CHARACTERS)) for name in runs)
        figure = new_figure(9.6, 3.3 + 0.19 * lines)
        panels = accuracy, likelihood, retention = figure.subplots(1, 3)
        for axes, of_runs in zip(panels, zip(*curves, strict=True), strict=True):
            marker = "o" if max(map(len, of_runs)) <= FEW_ROUNDS else ""
            for index, (name, points) in enumerate(zip(runs, of_runs, strict=True)):
                x, y = zip(*points, strict=True) if points else ((), ())
                axes.plot(x, y, **look_of(index), marker=marker, markersize=3.0, label=name)
        for axes in (accuracy, likelihood):
            axes.set_xlabel("round")
            whole_numbers(axes.xaxis, nbins=6)
        for axis in (accuracy.yaxis, retention.xaxis, retention.yaxis):
            percent_axis(axis)
        accuracy.set_ylabel("accuracy (%)")
        if all(finite_points(run.rounds, ERROR) for run in runs.values()):
            accuracy.yaxis.set_major_formatter("{x:g}")
            accuracy.set_ylabel("root-mean-squared error")
        likelihood.set_ylabel("negative log-likelihood (nats)")
        retention.set_xlim(0.0, 1.0)
        retention.set_xlabel(f"data retained by {BY.replace('-', ' ')} (%)")
        retention.set_ylabel("final accuracy (%)")
        label_panels(*panels)
        figure.legend(accuracy.get_lines(), names, loc="outside lower left", ncols=1)
        figure.suptitle(f"{len(runs)} runs on their test data")
        return png(figure)


def curves_of(run: RunResult) -> tuple[Points, Points, Points]:
    """Return the points of a run's curves: accuracy or error, likelihood, final retention.

    All are empty if the server has not evaluated. A regression has no retention curve of accuracy.

    Raises:
        DataError: A file of the run is corrupt.
    """
    of_classes = run.retention and ERROR not in run.metrics
    kept = retained(run.retention, ACCURACY, BY, run.source) if of_classes else {}
    first = finite_points(run.rounds, ACCURACY) or finite_points(run.rounds, ERROR)
    return first, finite_points(run.rounds, LIKELIHOOD), list(kept.items())
