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
    label_panels,
    look_of,
    new_figure,
    percent_axis,
    png,
    styled,
    whole_numbers,
)
from bfl.experiments.results.identity import is_written_to
from bfl.experiments.results.run_folder import CONFIG, METRICS, RunFolder
from bfl.experiments.results.table import ABSENT
from bfl.experiments.run.resume import FREE_TO_CHANGE
from bfl.experiments.studies.columns import Points, retained_at
from bfl.experiments.studies.results import (
    FAILED,
    NO_RESULTS,
    PERCENTS,
    StudyFolder,
    StudyResults,
    open_study,
    read_run,
)


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that affect the result and differ, in the order of the configurations.

    A key that one configuration lacks, such as one of an older version, differs.
    """
    keys = dict.fromkeys(key for config in configs for key in config if key not in FREE_TO_CHANGE)
    return [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]


def value_as_text(value: Any) -> str:
    """Return a configuration's value as text for a table or a legend.

    Example:
        >>> [value_as_text(value) for value in (0.001, True, "iid", None)]
        ['0.001', 'true', 'iid', '–']
    """
    text = ABSENT if value is None else str(value)
    return text.lower() if isinstance(value, bool) else text


def labels(names: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the runs' labels for a legend: their differing values or, if equal, their names.

    Example:
        >>> labels(["a", "b"], [{"rounds": 3, "seed": 0}, {"rounds": 3, "seed": 1}])
        ['seed 0', 'seed 1']
    """
    keys = differing_keys(configs)
    texts = [
        " · ".join(f"{key} {value_as_text(config.get(key))}" for key in keys) for config in configs
    ]
    return list(names) if len(set(texts)) < len(texts) else texts


@dataclass(frozen=True)
class ListedRun:
    """A run of a folder or a study; reading a corrupt file of it raises DataError.

    Attributes:
        name: Its name, or its path relative to a folder of several runs.
        folder: Its folder, which a study's run may lack.
        labels: A study's labels of the run; None: it is of no study.
        kept: A study's state of the run, its row and its curves; None: the folder has them.
    """

    name: str
    folder: RunFolder
    labels: Mapping[str, str] | None = None
    kept: tuple[str, Mapping[str, Any], Points] | None = None

    @property
    def has_begun(self) -> bool:
        """True if the run has a folder or a result."""
        return self.folder.holds(CONFIG) or bool(self.kept and self.kept[1])

    @cached_property
    def keys(self) -> Mapping[str, Any]:
        """The values that tell runs apart: a study's labels, or the configuration."""
        if self.labels is not None:
            return self.labels
        return self.folder.config() if self.has_begun else {}

    @cached_property
    def result(self) -> tuple[Mapping[str, Any], Points]:
        """The row of numbers so far, and the curves."""
        return self.kept[1:] if self.kept else read_run(self.folder)

    def began(self) -> tuple[bool, str]:
        """Return what sorts runs by when they began: those that have not, after all others."""
        if not self.has_begun:
            return True, ""
        with suppress(BflError):  # its own line says so
            if started := self.result[0].get(STARTED):
                return False, str(started)
        if not self.folder.holds(CONFIG):
            return False, ""
        written = (self.folder.path / CONFIG).stat().st_mtime
        return False, datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds")

    def state(self) -> str:
        """Return the run's state in words: finished, running, stopped, failed or missing."""
        if self.kept and self.kept[1]:
            return "finished"
        if not self.has_begun:
            return self.kept[0] if self.kept else "missing"
        if self.folder.holds(METRICS):
            return "finished"
        rounds = self.folder.rounds()
        planned = self.folder.config().get("rounds")
        where = f"round {rounds[-1]['round'] if rounds else 0} of {planned}"
        if is_written_to(self.folder.path):
            return f"running, {where}"
        failed = self.kept and self.kept[0] == FAILED
        return f"{'failed' if failed else 'stopped'} at {where}"

    def row(self, keys: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
        """Return the run as a row of a table: name, state, some keys, some metrics.

        The state of a run with corrupt files is the error.
        """
        try:
            found = self.result[0] if self.has_begun else {}
            own = self.keys
            shown = {key: value_as_text(own.get(key)) for key in keys}
            values = {name: found.get(name) for name in metrics}
            values = {n: v for n, v in values.items() if v == v}  # a study's frame has NaN for none
            return {"run": self.name, "state": self.state(), **shown, **values}
        except BflError as error:
            return {"run": self.name, "state": f"unreadable: {error}"}


def runs_in(path: Path, left_out: dict[str, BflError] | None = None) -> list[ListedRun]:
    """Return the runs of a folder: a study, a folder of runs, or a single run.

    Args:
        left_out: Gets the errors of unreadable studies, by name, if other runs can be read; None:
            an unreadable study raises.

    Raises:
        DataError: The folder does not exist or has no run.
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
    if RunFolder(top).holds(CONFIG):
        yield ListedRun(top.resolve().name, RunFolder(top))
        return
    for parent, names, _ in os.walk(top):
        folder = Path(parent)
        relative = folder.relative_to(top).as_posix()
        names[:] = sorted(name for name in names if not name.startswith("."))
        if StudyFolder(folder).holds_study():
            names.clear()
            try:
                yield from _study_runs(folder, "" if relative == "." else f"{relative}/")
            except BflError as error:
                unread[relative] = error
        elif RunFolder(folder).holds(CONFIG):
            names.clear()
            yield ListedRun(relative, RunFolder(folder))


def _study_runs(path: Path, prefix: str) -> Iterator[ListedRun]:
    opened = open_study(path, results=[Path(NO_RESULTS)])
    frame = opened.folder.read_frame(tuple(opened.study.runs[0].labels)).set_index("run")
    points = StudyResults(frame, opened.folder.read_curves()).points
    for run in opened.study.runs:
        folder = opened.folder.run(run.name)
        kept: tuple[str, Mapping[str, Any], Points] | None = None
        if not folder.holds(CONFIG):
            row = frame.loc[run.name].to_dict() if run.name in frame.index else {}
            state = "finished" if row else opened.folder.state(run.name)
            kept = (state, row, points.get(run.name, {}))
        elif not folder.holds(METRICS) and opened.folder.failure_file(run.name).is_file():
            kept = (FAILED, {}, {})
        yield ListedRun(prefix + run.name, folder, run.labels, kept)


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


LIKELIHOOD = "negative-log-likelihood"
BY = "predictive-entropy"
FEW_ROUNDS = 30
CHARACTERS = 90
"""The most characters in a line of the legend."""


def curves_of(points: Points) -> list[Mapping[Any, float]]:
    """Return the curves of a run: accuracy or error, likelihood, final accuracy by retention.

    All are empty if the server has not evaluated.
    """
    kept = {percent / 100: points.get(retained_at("accuracy", BY, percent)) for percent in PERCENTS}
    retention = {share: max(curve.items())[1] for share, curve in kept.items() if curve}
    first = points.get("accuracy") or points.get(ERROR) or {}
    return [first, points.get(LIKELIHOOD, {}), retention]


def overlay(runs: Mapping[str, Points]) -> bytes | None:
    """Return a PNG of learning curves and retention curves of runs; None without any curve."""
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
                x, y = zip(*sorted(points.items()), strict=True) if points else ((), ())
                axes.plot(x, y, **look_of(index), marker=marker, markersize=3.0, label=name)
        for axes in (accuracy, likelihood):
            axes.set_xlabel("round")
            whole_numbers(axes.xaxis, nbins=6)
        for axis in (accuracy.yaxis, retention.xaxis, retention.yaxis):
            percent_axis(axis)
        accuracy.set_ylabel("accuracy (%)")
        if all(ERROR in points for points in runs.values()):
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
