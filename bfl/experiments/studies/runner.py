"""Runner of a study: makes the missing runs in turn, and continues after a failure."""

from __future__ import annotations

import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from bfl.configuration import Configuration
from bfl.engine.flower import FlowerApp, RayEngine, run_serially
from bfl.engine.run import EngineRun
from bfl.engine.watched import watched_process
from bfl.errors import BflError, DataError, RunError
from bfl.evaluation.regression import ERROR
from bfl.experiments.results.progress import Follower
from bfl.experiments.results.run_folder import METRICS, RunFolder
from bfl.experiments.results.table import cell
from bfl.experiments.studies.folder import StudyFolder, is_done, rounds_done
from bfl.experiments.studies.planning import as_run
from bfl.experiments.studies.run_result import RunResult, result_of
from bfl.experiments.studies.study import Run
from bfl.printing import console_of_lines

LOG = "log.txt"

GO_ON = "the same command continues from here"


@dataclass
class SerialEngine:
    """Runs the app in this process; see ``run_serially``."""

    app: FlowerApp
    backend_config: Mapping[str, Any]
    alive: bool = True

    def run(self, overrides: Mapping[str, Any], num_supernodes: int, engine_run: EngineRun) -> None:
        """Run the app once, with these keys overridden, as ``RayEngine`` does."""
        run_serially(self.app, overrides, num_supernodes, self.backend_config, engine_run)


MakeEngine = Callable[[], AbstractContextManager[RayEngine | SerialEngine]]


@dataclass
class Outcome:
    """Outcome of a study's runs."""

    made: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)


LOG_WIDTH = 100
"""Characters in a line of a run's log."""


def _kind(configuration: Configuration) -> tuple[Any, ...]:
    """Return the settings that the time for an epoch of a round depends on."""
    keys = configuration.keys
    network = (configuration.words["model"], configuration.inference.name)
    step = (keys.precision, keys.batch_size)
    return (keys.dataset, keys.train_examples, keys.test_examples, *network, *step)


def work(configuration: Configuration) -> float:
    """Return a run's amount of work: its expected number of epochs over all clients' data."""
    keys = configuration.keys
    share = configuration.sampling.expected_share(max(1, keys.clients))
    return keys.rounds * configuration.workload.expected_epochs(keys.local_epochs) * share


class Estimate:
    """Seconds per unit of work by kind of run; a kind without a time gets the mean."""

    def __init__(self) -> None:
        self._spent: dict[tuple[Any, ...], Any] = defaultdict(lambda: np.zeros(2))

    def record(self, configuration: Configuration, seconds: float, share: float = 1.0) -> None:
        """Record the time that a run, or a share of it, has taken."""
        self._spent[_kind(configuration)] += seconds, work(configuration) * share

    def left(self, pending: Iterable[tuple[Configuration, float]]) -> float | None:
        """Return the seconds for shares of pending runs; None before the first record."""
        average = sum(self._spent.values(), np.zeros(2))
        if not average[1]:
            return None
        left = 0.0
        for configuration, share in pending:
            met = self._spent[_kind(configuration)]
            seconds, units = met if met[1] else average
            left += float(seconds / units) * work(configuration) * share
        return left


class StudyProgress:
    """Prints a line at each run's start and end, and two progress bars in a terminal."""

    def __init__(self, runs: int, done: int, console: Console | None, verbose: bool) -> None:
        self.console = console or console_of_lines()
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._verbose = verbose
        self._study = self.bars.add_task("runs", total=runs, completed=done, note="")
        self._run = self.bars.add_task("rounds", total=None, visible=False, note="")
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line, with the seconds since the start."""
        self.console.print(f"[{time.monotonic() - self._started:7.1f} s] {text}", markup=False)

    def round(self, number: int, rounds: int, shown: str, seconds: float | None) -> None:
        """Show a completed round of the current run, and the study's remaining time."""
        self.bars.update(self._study, note=left_in_words(seconds))
        self.bars.update(self._run, total=rounds, completed=number, note=shown, visible=True)
        self.bars.refresh()

    def run_is_over(self) -> None:
        """Show that the current run is over."""
        self.bars.update(self._run, visible=False)
        self.bars.advance(self._study)

    @contextmanager
    def log(self, path: Path) -> Iterator[Console]:
        """Yield a run's console: its log, which is appended to, or the shared console.

        Raises:
            RunError: The log cannot be written.
        """
        if self._verbose:
            yield self.console
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error
        with stream:
            yield Console(file=stream, highlight=False, width=LOG_WIDTH, soft_wrap=True)


def left_in_words(seconds: float | None) -> str:
    """Return the remaining time in words; empty where it is unknown or 0."""
    return f"about {timedelta(seconds=round(seconds))} left" if seconds else ""


class Runner:
    """Maker of a study's missing runs.

    A failed run is recorded, and the others continue on a new engine, as the state of the old one
    is unknown. A run whose files are damaged counts as failed.

    Args:
        runs: The runs, in their order.
        make_engine: Makes the engine that all runs share.
        finished: Existing results, by the run's name.
        same: Runs that repeat the computation of a run that is finished or comes earlier, with
            that run's name.
        console: Where to print; standard output by default.
        verbose: Whether the runs' own lines are shown, and not only logged.
    """

    def __init__(
        self,
        folder: StudyFolder,
        runs: Sequence[Run],
        make_engine: MakeEngine,
        *,
        finished: Mapping[str, RunResult] | None = None,
        same: Mapping[str, str] | None = None,
        console: Console | None = None,
        verbose: bool = False,
    ) -> None:
        self.folder = folder
        self.runs = runs
        self.make_engine = make_engine
        self.finished = dict(finished or {})
        self.same = same or {}
        self.outcome = Outcome()
        self.shown = StudyProgress(len(runs), self.done(), console, verbose)
        self._engine: RayEngine | SerialEngine | None = None
        self._stack = ExitStack()
        self._estimate = Estimate()
        self._pending: dict[str, tuple[Run, float]] = {}

    def done(self) -> int:
        """Return the number of finished runs."""
        known = self.finished
        return sum(r.name in known or is_done(self.folder.run(r.name), r.rounds) for r in self.runs)

    def make_all(self) -> Outcome:
        """Make all missing runs, and return their outcome.

        Raises:
            ConfigurationError: The engine cannot be configured as asked.
            RunError: The engine cannot be started, or the study's folder cannot be written.
            KeyboardInterrupt: The user has interrupted; finished runs and rounds are kept.
        """
        with self.shown.bars:
            try:
                self._make_all()
            except KeyboardInterrupt:
                self.shown.say(f"{self.done()} of {len(self.runs)} runs are done")
                raise
            finally:
                self._end_engine()
        return self.outcome

    def _make_all(self) -> None:
        self.finished = {**self.folder.results(), **self.finished}
        for run in self.runs:
            result = self.finished.get(run.name)
            if result and result.number_of_rounds == run.rounds:
                self._skip(run, result)
            else:
                self._pending[run.name] = (run, 1.0)
        self.folder.keep(self.finished[name] for name in self.outcome.skipped)
        for run, _ in list(self._pending.values()):
            if run.name in watched_process().died:
                self._failed(run, RunError(watched_process().died[run.name]))
            elif run.name in self.same:
                self._take_over(run, self.same[run.name])
            else:
                self._settle(run)
            self._pending.pop(run.name)
            self.shown.run_is_over()

    def _skip(self, run: Run, result: RunResult) -> None:
        self.finished[run.name] = result
        if self.folder.run(run.name).holds(METRICS):
            # The time of a run that was made on another machine says nothing about this one.
            self._estimate.record(run.configuration, result.seconds)
        self.folder.failure_file(run.name).unlink(missing_ok=True)
        self.outcome.skipped.append(run.name)

    def _started_engine(self) -> RayEngine | SerialEngine:
        """Return the started engine; a new one if the last one has died."""
        if self._engine is not None and not self._engine.alive:
            self._end_engine()
        if self._engine is None:
            self._engine = self._stack.enter_context(self.make_engine())
        return self._engine

    def _end_engine(self) -> None:
        self._engine = None
        with suppress(Exception):  # a dead engine cannot be shut down cleanly
            self._stack.close()

    def _settle(self, run: Run) -> None:
        """Make a run, unless it is done or another process is making it."""
        folder = self.folder.run(run.name)
        with self.folder.claimed(run.name) as ours:
            if not ours:
                self.outcome.elsewhere.append(run.name)
                self.shown.say(f"{run.name}: another process is working on it")
                return
            try:
                if is_done(folder, run.rounds):
                    self._skip(run, result_of(folder, run.name))
                    self.folder.keep([self.finished[run.name]])
                    return
                done = rounds_done(folder)
                seconds = sum(float(r.get("seconds", 0)) for r in folder.rounds()) if done else 0
            except BflError as error:
                self._failed(run, error)
                return
            self._estimate.record(run.configuration, seconds, done / run.rounds)
            self._say(run, f"resumes after round {done}" if done else "begins")
            self._make(run)

    def _take_over(self, run: Run, first: str) -> None:
        """Copy the result of the run that makes the same computation."""
        result = self.finished.get(first) or self.folder.results().get(first)
        if result and result.number_of_rounds == run.rounds:
            self.folder.keep([as_run(result, run)])
            self._made(run, f"the same computation as {first}")
        elif first in self.outcome.failed:
            self.outcome.failed[run.name] = f"the same computation as {first}, which has failed"
        else:
            self.outcome.elsewhere.append(run.name)

    def _make(self, run: Run) -> None:
        folder = self.folder.run(run.name)
        engine_run = EngineRun(advice=GO_ON)
        watched_process().begins(run.name)
        with engine_run.in_progress():
            engine = self._started_engine()
            started = last = time.monotonic()

            def on_round(number: int, rounds: int, _seconds: float, shown: str) -> None:
                """Record a round's time, with its evaluation, and show the round."""
                nonlocal last
                now = time.monotonic()
                self._estimate.record(run.configuration, now - last, 1 / rounds)
                last = now
                self.shown.round(
                    number, rounds, shown, self._seconds_left(run, 1 - number / rounds)
                )

            try:
                with self.shown.log(folder.path / LOG) as console:
                    engine_run.follower = Follower(console, on_round)
                    engine.run(run.values, run.configuration.keys.clients, engine_run)
                if not is_done(folder, run.rounds):
                    raise RunError("the engine has returned, but the run has left no metrics")
                self.folder.keep([result_of(folder, run.name)])
            except Exception as error:
                self._failed(run, error)
                self._end_engine()
                return
            finally:
                watched_process().ends()
        took = timedelta(seconds=round(time.monotonic() - started))
        left = left_in_words(self._seconds_left(run, 0.0))
        self._made(run, f"{_numbers(folder)}  ({took}{'; ' if left else ''}{left})")

    def _made(self, run: Run, text: str) -> None:
        self.folder.failure_file(run.name).unlink(missing_ok=True)
        self.outcome.made.append(run.name)
        self._say(run, text)

    def _failed(self, run: Run, error: Exception) -> None:
        reason = str(error).strip() or repr(error)
        self.outcome.failed[run.name] = reason
        when = datetime.now().isoformat(" ", "seconds")
        text = f"{when}\n{reason}\n\n{''.join(traceback.format_exception(error))}"
        self.folder.write(f"failures/{run.name}.txt", text.encode())
        first = reason.splitlines()[0] if isinstance(error, BflError) else repr(error)
        self._say(run, f"failed: {first}")

    def _say(self, run: Run, text: str) -> None:
        self.shown.say(f"{self.runs.index(run) + 1}/{len(self.runs)} {run.name}: {text}")

    def _seconds_left(self, run: Run, share: float) -> float | None:
        """Return the seconds that all runs still take, given the current one's remaining share."""
        self._pending[run.name] = (run, share)
        return self._estimate.left((r.configuration, s) for r, s in self._pending.values())


def _numbers(folder: RunFolder) -> str:
    """Return a run's main metrics in one line."""
    try:
        metrics = folder.metrics()
    except DataError as error:  # the table's command reports it as an error
        return str(error)
    names = {"accuracy": "accuracy", ERROR: "RMSE", "negative-log-likelihood": "NLL"}
    return "  ".join(f"{names[key]} {cell(metrics[key])}" for key in names if key in metrics)
