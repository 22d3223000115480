"""What a person sees while a federation runs: a line a round, and a bar in a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bfl.results.table import cell

# What a round's line shows, where the round has it, and how it is called there.
_SHOWN = {
    "accuracy": "accuracy",
    "negative-log-likelihood": "NLL",
    "expected-calibration-error": "ECE",
    "train-loss": "train loss",
    "failures": "failures",
}


class ProgressReport:
    """Prints one line a round; in a terminal also a bar with the time that is left.

    Args:
        rounds: The number of rounds.
        console: Where to; standard output by default.
    """

    def __init__(self, rounds: int, console: Console | None = None) -> None:
        self.rounds = rounds
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("rounds"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._bar = self._progress.add_task("rounds", total=rounds)
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line, with the seconds since the beginning."""
        self.console.print(f"[{time.monotonic() - self._started:6.1f} s] {text}", markup=False)

    def round(self, number: int, seconds: float, metrics: Mapping[str, Any]) -> None:
        """Print the line of a round that is over."""
        shown = "  ".join(
            f"{name} {cell(metrics[key])}"
            for key, name in _SHOWN.items()
            if metrics.get(key) not in (None, 0)
        )
        self.say(f"round {number}/{self.rounds}  {shown}  ({seconds:.1f} s)")
        self._progress.update(self._bar, completed=number)

    def __enter__(self) -> ProgressReport:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
