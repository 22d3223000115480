"""Progress of a study: the time left, a line a run, and in a terminal two bars."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from bfl.configuration import Configuration
from bfl.errors import RunError

LOG_WIDTH = 100
"""Characters in a line of a run's log."""


def _kind(configuration: Configuration) -> tuple[Any, ...]:
    """Return the settings that the time for an epoch of a round depends on."""
    keys = configuration.keys
    network = (configuration.words["model"], configuration.inference.name)
    step = (keys.precision, keys.batch_size)
    return (keys.dataset, keys.train_examples, keys.test_examples, *network, *step)


def work(configuration: Configuration) -> float:
    """Return a run's amount of work: epochs over the data that take part in a round."""
    keys = configuration.keys
    share = configuration.sampling.expected_share(max(1, keys.clients))
    return keys.rounds * configuration.workload.expected_epochs(keys.local_epochs) * share


class Estimate:
    """Seconds per unit of work by kind of run; a kind not met yet is taken for an average one."""

    def __init__(self) -> None:
        self._spent: dict[tuple[Any, ...], Any] = defaultdict(lambda: np.zeros(2))

    def record(self, configuration: Configuration, seconds: float, share: float = 1.0) -> None:
        """Take note of the time that a run, or a share of it, has taken."""
        self._spent[_kind(configuration)] += seconds, work(configuration) * share

    def left(self, pending: Iterable[tuple[Configuration, float]]) -> float | None:
        """Return the seconds that runs still take, of each a share; None: nothing is known yet."""
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
    """Prints a line when a run begins and when it ends; in a terminal also two bars."""

    def __init__(self, runs: int, done: int, console: Console | None, verbose: bool) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
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
        """Print a line, with the seconds since the beginning."""
        self.console.print(f"[{time.monotonic() - self._started:7.1f} s] {text}", markup=False)

    def round(self, number: int, rounds: int, shown: str, seconds: float | None) -> None:
        """Show that a round of the present run is over, and the time that the study still takes."""
        self.bars.update(self._study, note=left_in_words(seconds))
        self.bars.update(self._run, total=rounds, completed=number, note=shown, visible=True)
        self.bars.refresh()

    def run_is_over(self) -> None:
        """Show that the present run is over."""
        self.bars.update(self._run, visible=False)
        self.bars.advance(self._study)

    @contextmanager
    def log(self, path: Path) -> Iterator[Console]:
        """Give a block the console of a run: a log that is added to, or everybody's.

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
    """Return the time left in words; empty where it is not known, or nothing."""
    return f"about {timedelta(seconds=round(seconds))} left" if seconds else ""
