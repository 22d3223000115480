"""The log of a run from its beginning to its end: nothing twice, and no failure ends the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bfl.experiments.tracking.base import TrackedRun, Tracker, Tracking


def numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return what can be drawn of a line of ``rounds.jsonl``: its numbers, without the round."""
    return {
        key: float(value)
        for key, value in entry.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key != "round"
    }


class LiveLog:
    """Hands a run's rounds to a tracker, until that fails; then it says so once and goes on.

    Args:
        tracker: The tracker.
        run: The run.
        rounds: The rounds that the run has made before; those that the log lacks are added.
        warn: Told what has failed.
    """

    def __init__(
        self,
        tracker: Tracker,
        run: TrackedRun,
        rounds: Sequence[Mapping[str, Any]],
        warn: Callable[[str], None],
    ) -> None:
        self._name = tracker.name
        self._warn = warn
        self._tracking: Tracking | None = None
        self._last = 0

        def begin() -> None:
            self._tracking = tracker.open(run)
            self._last = self._tracking.last_round

        self._guarded(begin)
        for entry in rounds:
            self.round(entry)

    def round(self, entry: Mapping[str, Any]) -> None:
        """Log a line of ``rounds.jsonl``, unless the log already has it."""
        number = int(entry["round"])
        if number > self._last and (tracking := self._tracking):
            self._last = number
            self._guarded(lambda: tracking.log_round(number, numbers(entry)))

    def end(self, metrics: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Log the final metrics and the figures."""
        if tracking := self._tracking:
            self._guarded(lambda: tracking.log_end(self._last, numbers(metrics), figures))

    def __enter__(self) -> LiveLog:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Close the log; a run that an error or an interruption ends is not finished."""
        if tracking := self._tracking:
            self._guarded(lambda: tracking.close(finished=error is None))

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # whatever a tracker or its server comes up with
            self._tracking = None
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self._warn(f"log '{self._name}' has failed and is left out from now on: {lines[0]}")
