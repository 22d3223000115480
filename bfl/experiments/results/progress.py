"""Progress of a run: a line for each round, and a bar in a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bfl.experiments.results.table import cell
from bfl.federation.client_metrics import TRAIN_DIVERGENCE_PER_EXAMPLE, TRAIN_LIKELIHOOD, recorded
from bfl.federation.privacy.accountant import EPSILON, EXAMPLE_EPSILON
from bfl.printing import console_of_lines

_MATTER = {
    "accuracy": "accuracy",
    "root-mean-squared-error": "RMSE",
    "negative-log-likelihood": "NLL",
    "expected-calibration-error": "ECE",
    "mean-epistemic": "epistemic",
}
_DETAILS = {
    recorded(TRAIN_LIKELIHOOD): "train NLL",
    recorded(TRAIN_DIVERGENCE_PER_EXAMPLE): "train KL/N",
}
_BOUNDS = {EPSILON: "ε", EXAMPLE_EPSILON: "ε of examples", "failures": "failures"}
"""Numbers of a round's line, and of the end's, with their labels; details are for ``verbose``."""


class ProgressReport:
    """Prints a line for each round; in a terminal also a bar with the remaining time.

    Args:
        began: The start of the run's command, by the monotonic clock; None: now.
        verbose: Whether lines have the terms of the training's loss as well.
    """

    def __init__(
        self,
        rounds: int,
        console: Console | None = None,
        *,
        began: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.rounds = rounds
        self.verbose = verbose
        self.console = console or console_of_lines()
        self._progress = Progress(
            TextColumn("rounds"),
            BarColumn(bar_width=8),  # 80 columns are enough for all
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[seen]}", style="dim"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal or self.console.quiet,
        )
        self._bar = self._progress.add_task("rounds", total=rounds, seen="")
        self._started = time.monotonic() if began is None else began

    def say(self, text: str) -> None:
        """Print a line, with the seconds since the start."""
        self.console.print(f"[{time.monotonic() - self._started:6.1f} s] {text}", markup=False)

    def round(self, number: int, seconds: float, metrics: Mapping[str, Any]) -> None:
        """Print the line of a finished round."""
        labels = {**_MATTER, **(_DETAILS if self.verbose else {}), **_BOUNDS}
        shown = _shown(metrics, labels)
        self.say(f"round {number}/{self.rounds}  {shown}  ({seconds:.1f} s)")
        self._progress.update(self._bar, completed=number, seen=self._seen(metrics))

    def end(self, metrics: Mapping[str, Any], folder: Path) -> None:
        """Print the numbers that matter of a run that is over, its folder, and the next command."""
        if shown := _shown(metrics, _MATTER):
            self.say(f"final  {shown}")
        self.say(f"results are in {folder}")
        self.say(f"next: bfl report {folder} (a page to send), bfl show {folder} (all numbers)")

    @property
    def is_live(self) -> bool:
        """True if there is a line that changes: in a terminal."""
        return not self._progress.disable

    def replied(self, asked: int, counts: Mapping[str, int]) -> None:
        """Show how many of the sampled clients have replied, failed or been refused so far."""
        of_asked = {**counts, "clients": f"{counts['clients']}/{asked}"}
        self._progress.update(self._bar, seen=self._seen(of_asked))

    def _seen(self, counts: Mapping[str, Any]) -> str:
        named = ("clients", "failures", "refused")
        return "  ".join(f"{counts[name]} {name}" for name in named if counts.get(name))

    def __enter__(self) -> ProgressReport:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _shown(metrics: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    return "  ".join(
        f"{name} {cell(metrics[key])}"
        for key, name in labels.items()
        if metrics.get(key) is not None and (metrics[key] or key != "failures")
    )
