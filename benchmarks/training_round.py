"""A federation's round with Flipout ResNet-20 against bayesian-torch's training steps.

Ours is a whole round of Flower's Ray engine with two actors of one CPU each: messages, loading the
posterior, training, pooling. The peer's two processes of one thread each do training steps only.

    BFL_PEERS_PYTHON=... python benchmarks/training_round.py --output FILE
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import Report, Row, Timing, options, publish
from random_images import write_images

from bfl.engine.flower import FlowerApp, RayEngine
from bfl.experiments.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
CLIENTS, PROCESSES, BATCH = 10, 2, 32
BACKEND = {"init_args": {"num_cpus": PROCESSES}, "client_resources": {"num_cpus": 1}}


def settings(folder: Path, images: int, **more: Any) -> dict[str, Any]:
    """Return the configuration of a run without evaluations in between."""
    return {
        "dataset": write_images(folder, images),
        "model": "resnet20",
        "local-epochs": 1,
        "batch-size": BATCH,
        "evaluate-every": 0,
        "mc-samples": 1,
        "clients": CLIENTS,
        "output-dir": str(folder),
        **more,
    }


def ours(engine: RayEngine, images: int, precision: str, rounds: int) -> float:
    """Return the images per second of a run's rounds after the first, on average."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        values = settings(folder, images, rounds=rounds + 1, name="run", precision=precision)
        engine.run(values, CLIENTS)
        seconds = [entry["seconds"] for entry in RunFolder(folder / "run").rounds()]
    return images / statistics.mean(seconds[1:])


def peer(steps: int) -> float | None:
    """Return the images per second of two processes together, side by side."""
    python = os.environ.get("BFL_PEERS_PYTHON")
    if not python:
        return None
    script = Path(__file__).with_name("peers") / "bayesian_torch_resnet20.py"
    command = [python, str(script), "train", "--steps", str(steps), "--runs", "1"]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    return sum(json.loads(p.communicate()[0])["images_per_second"][0] for p in processes)


def convolutions(precision: str, steps: int = 3) -> float:
    """Return the images per second that the network's convolutions alone allow, in two processes.

    They are Flipout's two a layer, with their gradients, and nothing between them.
    """
    script = Path(__file__).with_name("convolutions_alone.py")
    command = [sys.executable, str(script), precision, str(steps), str(BATCH)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    return sum(float(p.communicate()[0].split()[-1]) for p in processes)


def main() -> None:
    """Run the benchmark: each turn measures all sides once, and ratios are taken turn by turn."""
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=4800, help="images of all clients (4800)")
    given = parser.parse_args()
    goals = {"float32": 2.0, "bfloat16": 2.8}
    mine: dict[str, list[float]] = {precision: [] for precision in goals}
    alone: dict[str, list[float]] = {precision: [] for precision in goals}
    theirs: list[float] = []
    with RayEngine(FlowerApp.read(ROOT), BACKEND, most_clients=CLIENTS) as engine:
        for _ in range(given.runs):
            for precision in goals:
                mine[precision].append(ours(engine, given.images, precision, rounds=1))
                alone[precision].append(convolutions(precision, steps=10))
            other = peer(10)
            if other:
                theirs.append(other)
    rows = []
    for precision, goal in goals.items():
        what = f"round of {CLIENTS} clients, {precision}"
        if theirs:
            rows.append(_row(what, mine[precision], "bayesian-torch, float32", theirs, goal))
        limit = f"the convolutions alone, {precision}"
        rows.append(_row(what, mine[precision], limit, alone[precision], None))
    notes = [
        f"{CLIENTS} clients, {given.images} random images, batch {BATCH}; two processes of one "
        "thread on every side; the ratio is the median of those of the turns"
    ]
    if not theirs:
        notes.append("bayesian-torch was not measured: BFL_PEERS_PYTHON is not set")
    title = "A federation's round with Flipout ResNet-20"
    publish(Report("training_round", title, rows, notes), given.output)


def _row(what: str, mine: list[float], name: str, other: list[float], goal: float | None) -> Row:
    ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
    return Row(what, "img/s", Timing.of(mine), name, Timing.of(other), ratio, goal)


if __name__ == "__main__":
    main()
