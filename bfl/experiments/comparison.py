"""Comparison of the runs of a folder or a study: states, differing keys and curves."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from bfl.errors import BflError, DataError
from bfl.evaluation.regression import ERROR
from bfl.experiments.results.environment import STARTED
from bfl.experiments.results.figures import style
from bfl.experiments.results.run_folder import CONFIG, METRICS, RunFolder, is_written_to
from bfl.experiments.results.table import ABSENT
from bfl.experiments.run.resume import FREE_TO_CHANGE
from bfl.experiments.studies.columns import retained_at
from bfl.experiments.studies.results import (
    FAILED,
    NO_RESULTS,
    PERCENTS,
    STUDY_TOML,
    StudyFolder,
    open_study,
    read_run,
)

if TYPE_CHECKING:
    import pandas as pd


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that affect the result and differ, or that one configuration lacks."""
    keys = dict.fromkeys(key for config in configs for key in config if key not in FREE_TO_CHANGE)
    return [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]


def value_as_text(value: Any) -> str:
    """Return a configuration's value as text: ``true``, or ``–`` for None."""
    text = ABSENT if value is None else str(value)
    return text.lower() if isinstance(value, bool) else text


def labels(names: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the runs' labels for a legend: their differing values or, if equal, their names."""
    keys = differing_keys(configs)
    texts = [
        " · ".join(f"{key} {value_as_text(config.get(key))}" for key in keys) for config in configs
    ]
    return list(names) if len(set(texts)) < len(texts) else texts


@dataclass(frozen=True)
class ListedRun:
    """A run of a folder or a study; reading a corrupt file of it raises DataError.

    A study's run may have no folder: then ``kept`` has its row and curves, if there are any.
    """

    name: str
    folder: RunFolder
    labels: Mapping[str, str] | None = None
    failed: bool = False
    kept: tuple[Mapping[str, Any], pd.DataFrame] | None = None

    @property
    def has_begun(self) -> bool:
        """True if the run has a folder or a result."""
        return self.folder.holds(CONFIG) or self.kept is not None

    @cached_property
    def keys(self) -> Mapping[str, Any]:
        """The values that tell runs apart: a study's labels, or the configuration."""
        if self.labels is not None:
            return self.labels
        return self.folder.config() if self.has_begun else {}

    @cached_property
    def result(self) -> tuple[Mapping[str, Any], pd.DataFrame]:
        """The row of numbers so far, and the curves."""
        return self.kept or read_run(self.folder)

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
        if self.kept or self.folder.holds(METRICS):
            return "finished"
        if not self.has_begun:
            return FAILED if self.failed else "missing"
        rounds = self.folder.rounds()
        planned = self.folder.config().get("rounds")
        where = f"round {rounds[-1]['round'] if rounds else 0} of {planned}"
        if is_written_to(self.folder.path):
            return f"running, {where}"
        return f"{FAILED if self.failed else 'stopped'} at {where}"

    def row(self, keys: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
        """Return the run as a row of a table; an error in reading it is its state."""
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
    """Return the runs of a folder: a study, a folder of runs, or a single run; DataError for none.

    An unreadable study raises, unless other runs can be read and ``left_out`` takes its error.
    """
    if not path.is_dir():
        raise DataError(f"there is no folder {path}")
    if RunFolder(path).holds(CONFIG):
        return [ListedRun(path.resolve().name, RunFolder(path))]
    unread: dict[str, BflError] = {}
    found: list[ListedRun] = []
    for parent, names, _ in os.walk(path):
        folder = Path(parent)
        relative = folder.relative_to(path).as_posix()
        names[:] = sorted(name for name in names if not name.startswith("."))
        if StudyFolder(folder).holds(STUDY_TOML):
            names.clear()
            try:
                found += _study_runs(folder, "" if relative == "." else f"{relative}/")
            except BflError as error:
                unread[relative] = error
        elif RunFolder(folder).holds(CONFIG):
            names.clear()
            found.append(ListedRun(relative, RunFolder(folder)))
    if unread and (left_out is None or not found):
        raise next(iter(unread.values()))
    if not found:
        raise DataError(f"there is no run in {path}")
    if left_out is not None:
        left_out.update(unread)
    return found


def _study_runs(path: Path, prefix: str) -> Iterator[ListedRun]:
    opened = open_study(path, results=[Path(NO_RESULTS)])
    frame = opened.folder.read_frame(tuple(opened.study.runs[0].labels)).set_index("run")
    curves = opened.folder.read_curves()
    for run in opened.study.runs:
        folder, name, kept = opened.folder.run(run.name), run.name, None
        if name in frame.index and not folder.holds(CONFIG):
            kept = frame.loc[name].to_dict(), curves[curves.run == name]
        failed = opened.folder.has_failed(name)
        yield ListedRun(prefix + name, folder, run.labels, failed, kept)


def chosen_runs(paths: Sequence[Path]) -> list[ListedRun]:
    """Return the runs that have begun; DataError for a folder without one, and one given twice."""
    chosen: list[ListedRun] = []
    for path in paths:
        begun = [run for run in runs_in(path) if run.has_begun]
        if not begun:
            raise DataError(f"no run in {path} has begun")
        chosen += begun
    for place, count in Counter(run.folder.path.resolve() for run in chosen).items():
        if count > 1:
            raise DataError(f"the run {place} is given twice")
    return chosen


LIKELIHOOD = "negative-log-likelihood"
BY = "predictive-entropy"
FEW_ROUNDS = 30
CHARACTERS = 90  # the most characters in a line of the legend


def curves_of(curves: pd.DataFrame) -> list[Mapping[Any, float]]:
    """Return the curves of a run: accuracy or error, likelihood, final accuracy by retention."""
    points = {
        str(metric): dict(zip(of["round"], of["value"], strict=True))
        for metric, of in curves.groupby("metric")
    }
    kept = {percent / 100: points.get(retained_at("accuracy", BY, percent)) for percent in PERCENTS}
    retention = {share: max(curve.items())[1] for share, curve in kept.items() if curve}
    first = points.get("accuracy") or points.get(ERROR) or {}
    return [first, points.get(LIKELIHOOD, {}), retention]


def overlay(runs: Mapping[str, pd.DataFrame]) -> bytes | None:
    """Return a PNG of learning curves and retention curves of runs; None without any curve."""
    curves = list(map(curves_of, runs.values()))
    if not any(map(any, curves)):
        return None
    names = ["\n".join(wrap(style.drawable(name), CHARACTERS)) for name in runs]
    with style.styled():
        lines = sum(len(wrap(name, CHARACTERS)) for name in runs)
        figure = style.new_figure(9.6, 3.3 + 0.19 * lines)
        panels = accuracy, likelihood, retention = figure.subplots(1, 3)
        for axes, of_runs in zip(panels, zip(*curves, strict=True), strict=True):
            marker = "o" if max(map(len, of_runs)) <= FEW_ROUNDS else ""
            for index, (name, points) in enumerate(zip(runs, of_runs, strict=True)):
                x, y = zip(*sorted(points.items()), strict=True) if points else ((), ())
                axes.plot(x, y, **style.look_of(index), marker=marker, markersize=3.0, label=name)
        for axes in (accuracy, likelihood):
            axes.set_xlabel("round")
            style.whole_numbers(axes.xaxis, nbins=6)
        style.percent_axis(accuracy.yaxis, retention.xaxis, retention.yaxis)
        accuracy.set_ylabel("accuracy (%)")
        if all((curves.metric == ERROR).any() for curves in runs.values()):
            accuracy.yaxis.set_major_formatter("{x:g}")
            accuracy.set_ylabel("root-mean-squared error")
        likelihood.set_ylabel("negative log-likelihood (nats)")
        retention.set_xlim(0.0, 1.0)
        retention.set_xlabel(f"data retained by {BY.replace('-', ' ')} (%)")
        retention.set_ylabel("final accuracy (%)")
        style.label_panels(*panels)
        figure.legend(accuracy.get_lines(), names, loc="outside lower left", ncols=1)
        figure.suptitle(f"{len(runs)} runs on their test data")
        return style.png(figure)
