"""Live logging of a run's rounds, its final figures and its configuration, picked by a word.

Nothing is logged twice, and no failure of a log ends the run.
"""

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
    """The log of one run, open, which keeps nothing; what it raises ends the log, never the run."""

    @property
    def last_round(self) -> int:
        """The last round that the log already has; 0 where it has none."""
        return 0

    def log_round(self, number: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a round; rounds come once each, in their order."""

    def log_end(self, rounds: int, metrics: Mapping[str, float], figures: Sequence[Path]) -> None:
        """Add the final metrics and the figures (PNG files), of a run of so many rounds."""

    def close(self, *, finished: bool) -> None:
        """Write what is left, and say whether the run has come to its end."""


class Tracker(Component):
    """Log of a run's rounds while it goes on.

    Attributes:
        package: The package that it needs and that bfl does not always bring along.
    """

    package: ClassVar[str] = ""

    def check(self) -> None:
        """Check that the package is there.

        Raises:
            ConfigurationError: It is not; the message says how to install it.
        """
        if self.package and importlib.util.find_spec(self.package) is None:
            raise ConfigurationError(
                f"log is '{self.name}', and the package {self.package} is not installed; install "
                f"it with: pip install {self.package}"
            )

    @abstractmethod
    def open(self, run: TrackedRun) -> Tracking:
        """Open the log of a run, new or one to go on with."""


trackers: Registry[Tracker] = Registry("log", "bfl.experiments.tracking")


@trackers.register("none")
class NoTracker(Tracker):
    """The run's folder alone has the rounds."""

    def open(self, run: TrackedRun) -> Tracking:
        """Return a log that keeps nothing."""
        return Tracking()


@dataclass(frozen=True)
class TrackedRun:
    """The run that is logged.

    Attributes:
        key: Its random word, the same when the run is gone on with.
        configuration: Every key, kebab-case, with its value.
    """

    path: Path
    name: str
    key: str
    configuration: Mapping[str, Any]


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
        rounds: The rounds that the run has made before; those that the log lacks are added.
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
