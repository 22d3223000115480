"""Making a study's runs: those that are left, one after the other, whatever becomes of one."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from bfl.engine.run import EngineRun
from bfl.engine.watched import watched_process
from bfl.errors import BflError, DataError, RunError
from bfl.experiments.results.run_folder import METRICS, RunFolder
from bfl.experiments.results.table import cell
from bfl.experiments.studies.checks import PlannedRun
from bfl.experiments.studies.engines import MakeEngine, WarmEngine
from bfl.experiments.studies.estimate import Estimate, duration
from bfl.experiments.studies.folder import StudyFolder, is_begun, is_done, rounds_done
from bfl.experiments.studies.progress import RunFollower, StudyProgress, left
from bfl.experiments.studies.run_result import RunResult, read_result, result_of, write_result
from bfl.experiments.studies.same_runs import as_run

LOG = "log.txt"

GO_ON = "the same command goes on from here"


@dataclass
class Outcome:
    """What has become of a study's runs.

    Attributes:
        made: Runs that have come to their end now.
        skipped: Runs that had before.
        failed: Why runs have failed, by name.
        elsewhere: Runs that another process is working on.
    """

    made: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)


class StudyRunner:
    """Makes the runs of a study that are left.

    Args:
        folder: The study's folder.
        runs: The runs, in their order.
        make_engine: Makes the engine that all runs share.
        progress: What is shown.
        finished: Results that are there already, by the run's name.
        same: Runs that are the computation of another one, which is finished or comes before; and
            that one's name.
    """

    def __init__(
        self,
        folder: StudyFolder,
        runs: Sequence[PlannedRun],
        make_engine: MakeEngine,
        progress: StudyProgress,
        finished: Mapping[str, RunResult] | None = None,
        same: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.runs = runs
        self.progress = progress
        self.finished = finished or {}
        self.same = same or {}
        self.outcome = Outcome()
        self._make_engine = make_engine
        self._estimate = Estimate()
        self._pending: dict[str, tuple[PlannedRun, float]] = {}

    def make_all(self) -> Outcome:
        """Make all runs that are left, and return what has become of them.

        A run that fails is recorded, and the others go on, on a new engine: what a failure leaves
        the old one in is not known. One whose files are damaged has failed as well.

        Raises:
            ConfigurationError: The engine cannot be had as configured.
            RunError: The engine cannot be started, or the study's folder cannot be written.
            KeyboardInterrupt: The user has had enough; all that is done is kept.
        """
        for run in self.runs:
            try:
                self._look_back(run)
            except BflError as error:
                self._damaged(run, error)
        with WarmEngine(self._make_engine) as engine:
            for run, _ in list(self._pending.values()):
                self._settle(run, engine)
                self._pending.pop(run.name)
                self.progress.run_is_over()
        return self.outcome

    def _damaged(self, run: PlannedRun, error: BflError) -> None:
        """Record that a run's files cannot be read, unless another process is writing them."""
        with self.folder.claimed(run.name) as ours:
            if ours:
                self._failed(run, error)
            else:
                self.outcome.elsewhere.append(run.name)

    @contextmanager
    def _failing_alone(self, run: PlannedRun) -> Iterator[None]:
        """Record what is wrong with the files of a run, and not raise it: others go on."""
        try:
            yield
        except BflError as error:
            self._failed(run, error)

    def _look_back(self, run: PlannedRun) -> None:
        """Put a run on the list of those to make, and learn from what earlier rounds have taken."""
        folder = self.folder.run(run.name)
        if self._is_done(run):
            result = self._keep(run)
            if folder.holds(METRICS):  # else it was made elsewhere: what that took says nothing
                share = result.number_of_rounds / run.rounds
                self._estimate.record(run.configuration, result.seconds, share)
            self.folder.forget_failure(run.name)
            self.outcome.skipped.append(run.name)
            return
        share = 0.0
        if is_begun(folder):
            share = min(1.0, rounds_done(folder) / run.rounds)
            seconds = sum(float(entry.get("seconds", 0.0)) for entry in folder.rounds())
            self._estimate.record(run.configuration, seconds, share)
        self._pending[run.name] = (run, 1.0 - share)

    def _settle(self, run: PlannedRun, engine: WarmEngine) -> None:
        """Make a run, unless it has another's result, or another process is working on it."""
        if run.name in watched_process().died:
            self._failed(run, RunError(watched_process().died[run.name]))
            return
        if run.name in self.same:
            with self._failing_alone(run):
                self._take_over(run, self.same[run.name])
            return
        with self.folder.claimed(run.name) as ours:
            if not ours:
                self.outcome.elsewhere.append(run.name)
                self.progress.say(f"{run.name}: another process is working on it")
            elif self._begins(run):
                self._make(run, engine)

    def _begins(self, run: PlannedRun) -> bool:
        """Return whether a run is to be made now, and say so."""
        with self._failing_alone(run):
            if self._is_done(run):
                self.outcome.skipped.append(run.name)
                return False
            done = rounds_done(self.folder.run(run.name))
            begun = f", going on after round {done}" if done else ""
            self.progress.say(f"{self._place(run)} {run.name}: begins{begun}")
            return True
        return False

    def _is_done(self, run: PlannedRun) -> bool:
        return run.name in self.finished or is_done(self.folder.run(run.name), run.rounds)

    def _keep(self, run: PlannedRun) -> RunResult:
        """Return what a finished run has given; it is written into its file, unless it is there."""
        path = self.folder.result_file(run.name)
        # What is in the file need not be read from the run again, whose records may be damaged.
        known = self._known(run.name, run.rounds)
        result = known or result_of(self.folder.run(run.name), run.name)
        if path.resolve() != result.source.resolve():
            write_result(path, result)
        return result

    def _known(self, name: str, rounds: int) -> RunResult | None:
        """Return a run's result of so many rounds, if it is there."""
        path = self.folder.result_file(name)
        result = self.finished.get(name) or (read_result(path) if path.is_file() else None)
        return result if result and result.number_of_rounds == rounds else None

    def _take_over(self, run: PlannedRun, first: str) -> None:
        """Give a run the result of the one whose computation it is."""
        if result := self._known(first, run.rounds):
            write_result(self.folder.result_file(run.name), as_run(result, run))
            self.folder.forget_failure(run.name)
            self.outcome.made.append(run.name)
            self.progress.say(f"{self._place(run)} {run.name}: the same computation as {first}")
        elif first in self.outcome.failed:
            self.outcome.failed[run.name] = f"the same computation as {first}, which has failed"
        else:
            self.outcome.elsewhere.append(run.name)

    def _make(self, run: PlannedRun, engine: WarmEngine) -> None:
        folder = self.folder.run(run.name)
        engine_run = EngineRun(advice=GO_ON)
        watched_process().begins(run.name)
        with engine_run.in_progress():
            ready = engine.get()
            clock = _RunClock(self, run)
            try:
                with self.progress.log(folder.path / LOG) as console:
                    engine_run.follower = RunFollower(console, clock.round)
                    ready.run(run.overrides, run.clients, engine_run)
                if not is_done(folder, run.rounds):
                    raise RunError("the engine has returned, but the run has left no metrics")
                write_result(self.folder.result_file(run.name), result_of(folder, run.name))
            except Exception as error:
                self._failed(run, error)
                engine.end()
                watched_process().ends()
                return
        watched_process().ends()
        self.folder.forget_failure(run.name)
        self.outcome.made.append(run.name)
        self.progress.say(f"{self._place(run)} {run.name}: {_numbers(folder)}{clock.over()}")

    def _failed(self, run: PlannedRun, error: Exception) -> None:
        reason = str(error).strip() or repr(error)
        self.outcome.failed[run.name] = reason
        when = datetime.now().isoformat(" ", "seconds")
        self.folder.record_failure(
            run.name, f"{when}\n{reason}\n\n{''.join(traceback.format_exception(error))}"
        )
        shown = reason.splitlines()[0] if isinstance(error, BflError) else repr(error)
        self.progress.say(f"{self._place(run)} {run.name}: failed: {shown}")

    def _place(self, run: PlannedRun) -> str:
        return f"{1 + [other.name for other in self.runs].index(run.name)}/{len(self.runs)}"

    def seconds_left(self, share: float, run: PlannedRun) -> float | None:
        """Return the seconds that all runs still take, of the present one being a share left."""
        self._pending[run.name] = (run, share)
        return self._estimate.left((r.configuration, s) for r, s in self._pending.values())

    def learn(self, run: PlannedRun, seconds: float, share: float) -> None:
        """Take note of what a share of a run has taken."""
        self._estimate.record(run.configuration, seconds, share)


class _RunClock:
    """The time of one run, round by round."""

    def __init__(self, runner: StudyRunner, run: PlannedRun) -> None:
        self.runner = runner
        self.run = run
        self._started = self._last = time.monotonic()

    def round(self, number: int, rounds: int, seconds: float, shown: str) -> None:
        """Take note that a round is over; its evaluation counts as well as its training."""
        now = time.monotonic()
        self.runner.learn(self.run, now - self._last, 1 / rounds)
        self._last = now
        self.runner.progress.round(number, rounds, shown)
        self.runner.progress.left(self.runner.seconds_left(1 - number / rounds, self.run))

    def over(self) -> str:
        """Return in words how long the run has taken and what is left of the study."""
        seconds = self.runner.seconds_left(0.0, self.run)
        more = f"; {left(seconds)}" if seconds else ""
        return f"  ({duration(time.monotonic() - self._started)}{more})"


def _numbers(folder: RunFolder) -> str:
    """Return a run's main numbers as a line shows them."""
    try:
        metrics = folder.metrics()
    except DataError as error:  # said here, and again when the table is made
        return str(error)
    shown = {"accuracy": "accuracy", "negative-log-likelihood": "NLL"}
    return "  ".join(f"{name} {cell(metrics.get(key))}" for key, name in shown.items())
