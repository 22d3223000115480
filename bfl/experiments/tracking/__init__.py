"""Live logging of a run's rounds, chosen by the key ``log``: no round twice, and no failed run."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bfl.errors import ConfigurationError
from bfl.registry import Component, Registry


class Tracking:
    """The open log of one run, which keeps nothing; its errors end the log, never the run."""

    @property
    def last_round(self) -> int:
        """The last round in the log; 0 without any."""
        return 0

    def log_round(self, number: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a round; each round comes once, in ascending order."""

    def log_end(self, rounds: int, metrics: Mapping[str, float], figures: Sequence[Path]) -> None:
        """Add the final metrics and the figures (PNG files) of a run with ``rounds`` rounds."""

    def close(self, *, finished: bool) -> None:
        """Write pending data and the run's state."""


class Tracker(Component):
    """Live log of a run's rounds, with the optional package that it needs."""

    package: ClassVar[str] = ""

    def check(self) -> None:
        """Raise ConfigurationError if the package is not installed."""
        if self.package and importlib.util.find_spec(self.package) is None:
            raise ConfigurationError(
                f"log is '{self.name}', and the package {self.package} is not installed; install "
                f"it with: pip install {self.package}"
            )

    @abstractmethod
    def open(self, run: TrackedRun) -> Tracking:
        """Open the log of a new or a resumed run."""


trackers: Registry[Tracker] = Registry("log", "bfl.experiments.tracking")


@trackers.register("none")
class NoTracker(Tracker):
    """No log besides the run's folder."""

    def open(self, run: TrackedRun) -> Tracking:
        """Return a log that keeps nothing."""
        return Tracking()


@dataclass(frozen=True)
class TrackedRun:
    """The logged run: its folder, its random key, which a resumed run keeps, and all its keys."""

    path: Path
    name: str
    key: str
    configuration: Mapping[str, Any]


def numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of ``rounds.jsonl``, without the round."""
    return {
        key: float(value)
        for key, value in entry.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key != "round"
    }


class LiveLog:
    """Forwarder of a run's rounds, with those before, to a tracker; warns once if it fails."""

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
        """Close the log; after an error or an interruption the run is not finished."""
        if tracking := self._tracking:
            self._guarded(lambda: tracking.close(finished=error is None))

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # trackers and their servers raise errors of any type
            self._tracking = None
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self._warn(f"log '{self._name}' has failed and is not written any more: {lines[0]}")
