"""Progress of a study for people: a line a run, and in a terminal two bars."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from bfl.errors import RunError
from bfl.experiments.studies.estimate import duration

LOG_WIDTH = 100
"""Characters in a line of a run's log."""


class RunFollower:
    """Follows one run: its lines go to a log, its rounds to the study's bars.

    Args:
        console: Where the run's lines go.
        on_round: Called with the round, the number of rounds, its seconds and its metrics.
    """

    def __init__(self, console: Console, on_round: Callable[[int, int, float, str], None]) -> None:
        self.console = console
        self._on_round = on_round

    def round(self, number: int, rounds: int, seconds: float, shown: str) -> None:
        """See ``bfl.experiments.results.progress.Follower``."""
        self._on_round(number, rounds, seconds, shown)


class StudyProgress:
    """Prints a line when a run begins and when it ends; in a terminal also two bars.

    Args:
        runs: The number of runs of the study.
        done: How many of them are done already.
        console: Where to; standard output by default.
        verbose: Whether the runs' own lines are shown as well, and not only logged.
    """

    def __init__(
        self, runs: int, done: int, console: Console | None = None, *, verbose: bool = False
    ) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.verbose = verbose
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._study = self._bars.add_task("runs", total=runs, completed=done, note="")
        self._run = self._bars.add_task("rounds", total=None, visible=False, note="")
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line, with the seconds since the beginning."""
        self.console.print(f"[{time.monotonic() - self._started:7.1f} s] {text}", markup=False)

    def left(self, seconds: float | None) -> None:
        """Show how long the study still takes; None: not known yet."""
        self._bars.update(self._study, note="" if seconds is None else left(seconds))

    def round(self, number: int, rounds: int, shown: str) -> None:
        """Show that a round of the present run is over."""
        self._bars.update(
            self._run, total=rounds, completed=number, note=shown, visible=True, refresh=True
        )

    def run_is_over(self) -> None:
        """Show that the present run is over."""
        self._bars.update(self._run, visible=False)
        self._bars.advance(self._study)

    @contextmanager
    def log(self, path: Path) -> Iterator[Console]:
        """Give a block the console of a run: a log that is added to, or everybody's.

        Raises:
            RunError: The log cannot be written.
        """
        if self.verbose:
            yield self.console
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error
        with stream:
            yield Console(file=stream, highlight=False, width=LOG_WIDTH, soft_wrap=True)

    def __enter__(self) -> StudyProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def left(seconds: float) -> str:
    """Return the words for the time that is left."""
    return f"about {duration(seconds)} left"
