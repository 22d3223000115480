"""TensorBoard."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import tomli_w

from bfl.experiments.tracking import TrackedRun, Tracker, Tracking, trackers

FOLDER = "tensorboard"
"""Folder of the event files in a run's folder."""

FINAL = "final/"
"""Prefix of the names of the final metrics."""


class _EventFiles(Tracking):
    """The events of a run, written anew by each process that goes on with it."""

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = run.path / FOLDER
        # All rounds before come again, from the run's own record: what a file has beyond them (a
        # round that was logged and lost its checkpoint) must not be drawn as well.
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = EventFileWriter(str(folder))
        self._add(0, hparams_pb(dict(run.configuration), trial_id=run.key))
        text = "".join(f"    {line}\n" for line in tomli_w.dumps(run.configuration).splitlines())
        self._add(0, text_pb("configuration", text))
        self._writer.flush()

    def log_round(self, number: int, metrics: Mapping[str, float]) -> None:
        self._add_scalars(number, metrics)

    def log_end(self, rounds: int, metrics: Mapping[str, float], figures: Sequence[Path]) -> None:
        self._add_scalars(rounds, {f"{FINAL}{name}": value for name, value in metrics.items()})
        for path in figures:
            self._add(rounds, _image(f"figures/{path.stem}", path.read_bytes()))
        self._writer.flush()

    def close(self, *, finished: bool) -> None:
        self._writer.close()

    def _add_scalars(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        for name, value in values.items():
            self._add(step, scalar_pb(name, value))
        self._writer.flush()

    def _add(self, step: int, summary: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def _image(tag: str, png: bytes) -> Any:
    """Return a summary of an image in RGBA; a PNG file has its width and height in bytes 16-24."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    width, height = struct.unpack(">II", png[16:24])
    image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
    return Summary(value=[Summary.Value(tag=tag, image=image)])


@trackers.register("tensorboard", aliases=("tb",))
class TensorBoardTracker(Tracker):
    """Event files in ``tensorboard/`` of the run's folder: ``tensorboard --logdir runs``."""

    package: ClassVar[str] = "tensorboard"

    def open(self, run: TrackedRun) -> Tracking:
        """Return a log in the run's folder."""
        return _EventFiles(run)
