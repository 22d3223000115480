"""Progress of a run: a line for each round, and a bar with a curve in a terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bfl.experiments.results.table import cell
from bfl.federation.client_metrics import TRAIN_DIVERGENCE_PER_EXAMPLE, TRAIN_LIKELIHOOD, recorded
from bfl.federation.privacy.accountant import EPSILON, EXAMPLE_EPSILON
from bfl.printing import console_of_lines

# The numbers in a round's line, with their labels.
_SHOWN = {
    "accuracy": "accuracy",
    "root-mean-squared-error": "RMSE",
    "negative-log-likelihood": "NLL",
    "expected-calibration-error": "ECE",
    recorded(TRAIN_LIKELIHOOD): "train NLL",
    recorded(TRAIN_DIVERGENCE_PER_EXAMPLE): "train KL/N",
    EPSILON: "ε",
    EXAMPLE_EPSILON: "ε of examples",
    "failures": "failures",
}

_DRAWN = ("accuracy", "root-mean-squared-error", recorded(TRAIN_LIKELIHOOD))
"""Numbers for the bar's curve; the first one that rounds have is drawn."""

_HEIGHTS, _POINTS = "▁▂▃▄▅▆▇█", 10
"""Characters for the heights of a curve's points, and the number of points."""


def sparkline(values: Sequence[float]) -> str:
    """Return a curve of the last values in one line of text.

    Example:
        >>> sparkline([0.0, 0.5, 1.0])
        '▁▅█'
    """
    shown = [value for value in values if math.isfinite(value)][-_POINTS:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    top = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[round(top * (v - low) / ((high - low) or 1.0))] for v in shown)


class ProgressReport:
    """Prints a line for each round; in a terminal also a bar with the remaining time.

    Args:
        console: Where to print; by default standard output.
    """

    def __init__(self, rounds: int, console: Console | None = None) -> None:
        self.rounds = rounds
        self.console = console or console_of_lines()
        self._progress = Progress(
            TextColumn("rounds"),
            BarColumn(bar_width=8),  # 80 columns are enough for all
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[seen]}", style="dim"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal or self.console.quiet,
        )
        self._bar = self._progress.add_task("rounds", total=rounds, seen="")
        self._curves: dict[str, list[float]] = {key: [] for key in _DRAWN}
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line, with the seconds since the start."""
        self.console.print(f"[{time.monotonic() - self._started:6.1f} s] {text}", markup=False)

    def round(self, number: int, seconds: float, metrics: Mapping[str, Any]) -> None:
        """Print the line of a finished round."""
        shown = "  ".join(
            f"{name} {cell(metrics[key])}"
            for key, name in _SHOWN.items()
            if metrics.get(key) is not None and (metrics[key] or key != "failures")
        )
        self.say(f"round {number}/{self.rounds}  {shown}  ({seconds:.1f} s)")
        for key, curve in self._curves.items():
            if isinstance(value := metrics.get(key), int | float):
                curve.append(value)
        self._progress.update(self._bar, completed=number, seen=self._seen(metrics))

    @property
    def is_live(self) -> bool:
        """True if there is a line that changes: in a terminal."""
        return not self._progress.disable

    def replied(self, asked: int, counts: Mapping[str, int]) -> None:
        """Show how many of the sampled clients have replied in the current round.

        Args:
            counts: The numbers of usable replies (``clients``), ``failures`` and ``refused``.
        """
        of_asked = {**counts, "clients": f"{counts['clients']}/{asked}"}
        self._progress.update(self._bar, seen=self._seen(of_asked))

    def _seen(self, counts: Mapping[str, Any]) -> str:
        drawn = next(filter(None, self._curves.values()), [])
        named = ("clients", "failures", "refused")
        return "  ".join([sparkline(drawn), *(f"{counts[k]} {k}" for k in named if counts.get(k))])

    def __enter__(self) -> ProgressReport:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
