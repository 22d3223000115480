"""Live logging of a run's rounds, chosen by the key ``log``: no round twice, and no failed run."""

from __future__ import annotations

import importlib.util
import struct
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import tomli_w

from bfl.errors import ConfigurationError
from bfl.files import private_folder
from bfl.registry import Component, Registry


class Tracking:
    """The open log of one run, which keeps nothing; its errors end the log, never the run."""

    last_round = 0
    """The last round in the log; 0 without any."""

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
        self._tracking: Tracking | None = Tracking()
        self._last = 0

        def begin(_: Tracking) -> None:
            self._tracking = tracker.open(run)
            self._last = self._tracking.last_round

        self._guarded(begin)
        for entry in rounds:
            self.round(entry)

    def round(self, entry: Mapping[str, Any]) -> None:
        """Log a line of ``rounds.jsonl``, unless the log already has it."""
        number = int(entry["round"])
        if number > self._last:
            self._last = number
            self._guarded(lambda log: log.log_round(number, numbers(entry)))

    def end(self, metrics: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Log the final metrics and the figures."""
        self._guarded(lambda log: log.log_end(self._last, numbers(metrics), figures))

    def __enter__(self) -> LiveLog:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Close the log; after an error or an interruption the run is not finished."""
        self._guarded(lambda log: log.close(finished=error is None))

    def _guarded(self, act: Callable[[Tracking], None]) -> None:
        try:
            if self._tracking:
                act(self._tracking)
        except Exception as error:  # trackers and their servers raise errors of any type
            self._tracking = None
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self._warn(f"log '{self._name}' has failed and is not written any more: {lines[0]}")


class _EventFiles(Tracking):
    """The event files of a run, rewritten by each process that resumes it."""

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = private_folder(run.path / "tensorboard")
        # All earlier rounds are logged again from the run's record: an old file may have rounds
        # whose checkpoint was lost.
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = EventFileWriter(str(folder))
        self._add(0, hparams_pb(dict(run.configuration), trial_id=run.key))
        text = "".join(f"    {line}\n" for line in tomli_w.dumps(run.configuration).splitlines())
        self._add(0, text_pb("configuration", text))
        self._writer.flush()

    def log_round(self, number: int, metrics: Mapping[str, float]) -> None:
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        for name, value in metrics.items():
            self._add(number, scalar_pb(name, value))
        self._writer.flush()

    def log_end(self, rounds: int, metrics: Mapping[str, float], figures: Sequence[Path]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self.log_round(rounds, {f"final/{name}": value for name, value in metrics.items()})
        for path in figures:
            png = path.read_bytes()
            # RGBA; a PNG file has its size in bytes 16 to 24.
            width, height = struct.unpack(">II", png[16:24])
            image = Summary.Image(
                height=height, width=width, colorspace=4, encoded_image_string=png
            )
            tag = f"figures/{path.stem}"
            self._add(rounds, Summary(value=[Summary.Value(tag=tag, image=image)]))
        self._writer.flush()

    def close(self, *, finished: bool) -> None:
        self._writer.close()

    def _add(self, step: int, summary: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))


@trackers.register("tensorboard", aliases=("tb",))
class TensorBoardTracker(Tracker):
    """Event files in ``tensorboard/`` of the run's folder: ``tensorboard --logdir runs``."""

    package: ClassVar[str] = "tensorboard"

    def open(self, run: TrackedRun) -> Tracking:
        """Return a log in the run's folder."""
        return _EventFiles(run)
