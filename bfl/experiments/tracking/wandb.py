"""Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bfl.experiments.tracking import TrackedRun, Tracker, Tracking, trackers
from bfl.files import write_atomically

PROJECT = "bfl"
"""The project, unless WANDB_PROJECT says another."""

LAST_ROUND = "wandb/last-round"
"""The file of a run's folder that says which rounds are written: offline, wandb does not know."""


class _WandbRun(Tracking):
    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._marker = run.path / LAST_ROUND
        self._marker.parent.mkdir(exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=run.key,
            name=run.name,
            dir=str(run.path),
            resume="allow",
            settings=wandb.Settings(console="off", quiet=True),
        )
        self._run.config.update(dict(run.configuration), allow_val_change=True)
        self._logged = self.last_round

    @property
    def last_round(self) -> int:
        written = int(self._marker.read_text()) if self._marker.exists() else 0
        # Steps are rounds, and ``step`` is the next one.
        return max(written, int(self._run.step) - 1)

    def log_round(self, number: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=number)
        # wandb writes a step when the next one comes.
        self._write_marker(number - 1)
        self._logged = number

    def log_end(self, rounds: int, metrics: Mapping[str, float], figures: Sequence[Path]) -> None:
        import wandb

        images = {f"figures/{path.stem}": wandb.Image(str(path)) for path in figures}
        self._run.log(images, step=max(rounds, int(self._run.step)))
        self._run.summary.update({f"final/{name}": value for name, value in metrics.items()})

    def close(self, *, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)
        self._write_marker(self._logged)

    def _write_marker(self, number: int) -> None:
        write_atomically(self._marker, f"{number}\n".encode())


@trackers.register("wandb")
class WandbTracker(Tracker):
    """A run of Weights & Biases, in ``wandb/`` of the run's folder with WANDB_MODE=offline."""

    package: ClassVar[str] = "wandb"

    def open(self, run: TrackedRun) -> Tracking:
        """Return a log by wandb."""
        return _WandbRun(run)
