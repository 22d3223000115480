"""Base of trackers, which log the rounds of a run while it goes on."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bfl.errors import ConfigurationError
from bfl.registry import Component, Registry


class Tracking(ABC):
    """The log of one run, open; what it raises ends the log and never the run."""

    @property
    def last_round(self) -> int:
        """The last round that the log already has; 0 where it has none."""
        return 0

    @abstractmethod
    def log_round(self, number: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a round; rounds come once each, in their order."""

    @abstractmethod
    def log_end(self, rounds: int, metrics: Mapping[str, float], figures: Sequence[Path]) -> None:
        """Add the final metrics and the figures (PNG files), of a run of so many rounds."""

    @abstractmethod
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


@dataclass(frozen=True)
class TrackedRun:
    """The run that is logged.

    Attributes:
        path: Its folder.
        name: Its name.
        key: Its random word, the same when the run is gone on with.
        configuration: Every key, kebab-case, with its value.
    """

    path: Path
    name: str
    key: str
    configuration: Mapping[str, Any]
