"""No live logging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bfl.experiments.tracking.base import TrackedRun, Tracker, Tracking, trackers


class _Nowhere(Tracking):
    def log_round(self, number: int, metrics: Mapping[str, float]) -> None:
        pass

    def log_end(self, rounds: int, metrics: Mapping[str, float], figures: Sequence[Path]) -> None:
        pass

    def close(self, *, finished: bool) -> None:
        pass


@trackers.register("none")
class NoTracker(Tracker):
    """The run's folder alone has the rounds."""

    def open(self, run: TrackedRun) -> Tracking:
        """Return a log that keeps nothing."""
        return _Nowhere()
