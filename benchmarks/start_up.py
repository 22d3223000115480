"""From the command to the end of a first, tiny round, of ten clients; and again in a warm engine.

The round has one training step for each client, so it ends about a second after the first step;
what counts is the start of Ray, the imports, and building and tracing Flipout ResNet-20.

    python benchmarks/start_up.py --output FILE
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import ROOT, Report, Timing, options, publish, row, simulation_command
from training_round import BACKEND, BATCH, CLIENTS, settings

from bfl.engine.flower.app import FlowerApp
from bfl.engine.flower.simulation import RayEngine

QUOTED = 28.5
"""Seconds that Flower, Ray and TensorFlow took on a machine of two cores: 27 to 30."""


def values_in(folder: Path, name: str) -> dict[str, Any]:
    """Return the configuration of a run of one step for each client."""
    return settings(folder, CLIENTS * BATCH, rounds=1, name=name)


def first_round(folder: Path, name: str) -> float:
    """Return when the first round of a finished run of one round was recorded."""
    return (folder / name / "rounds.jsonl").stat().st_mtime


def cold(folder: Path, name: str) -> float:
    """Return the seconds from a command to the end of its first round."""
    pairs = " ".join(
        f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}"
        for key, value in values_in(folder, name).items()
    )
    command = simulation_command("--run-config", pairs)
    started = time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return first_round(folder, name) - started


def warm(folder: Path, runs: int) -> list[float]:
    """Return the seconds to the end of the first round of runs after the first in one engine."""
    taken = []
    with RayEngine(FlowerApp.read(ROOT), BACKEND, most_clients=CLIENTS) as engine:
        for run in range(runs + 1):
            started = time.time()
            engine.run(values_in(folder, f"warm-{run}"), CLIENTS)
            taken.append(first_round(folder, f"warm-{run}") - started)
    return taken[1:]


def main() -> None:
    """Run the benchmark."""
    given = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        started = Timing.of([cold(folder, f"cold-{run}") for run in range(given.runs)])
        again = warm(folder, given.runs)
    quoted = "Flower's own start to the first step, quoted"
    rows = [
        row("a command, to the end of its first round", "s", started, quoted, QUOTED, QUOTED / 15),
        row("a later run of a study, likewise", "s", again, "a command of its own", started),
    ]
    notes = [f"{CLIENTS} clients of {BATCH} images, ResNet-20; the goal stands for 15 s"]
    publish(Report("start_up", "Start-up", rows, notes), given.output)


if __name__ == "__main__":
    main()
