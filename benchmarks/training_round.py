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
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Report, Row, Timing, options, publish

from bfl.engine.flower import FlowerApp, RayEngine
from bfl.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
CLIENTS, PROCESSES, BATCH = 10, 2, 32
BACKEND = {"init_args": {"num_cpus": PROCESSES}, "client_resources": {"num_cpus": 1}}


def dataset(folder: Path, images: int) -> str:
    """Write random images of CIFAR-10's shape and return the word for them."""
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8)
    y = np.arange(images) % 10
    np.savez(folder / "images.npz", x_train=x, y_train=y, x_test=x[:64], y_test=y[:64])
    return f"npz:{folder}/images.npz"


def settings(folder: Path, images: int, **more: Any) -> dict[str, Any]:
    """Return the configuration of a run without evaluations in between."""
    return {
        "dataset": dataset(folder, images),
        "model": "resnet20",
        "local-epochs": 1,
        "batch-size": BATCH,
        "evaluate-every": 0,
        "mc-samples": 1,
        "clients": CLIENTS,
        "output-dir": str(folder),
        **more,
    }


def ours(engine: RayEngine, images: int, precision: str, rounds: int) -> Timing:
    """Return the images per second of each round but the first, which traces the graph."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        values = settings(folder, images, rounds=rounds + 1, name="run", precision=precision)
        engine.run(values, CLIENTS)
        seconds = [entry["seconds"] for entry in RunFolder(folder / "run").rounds()]
    return Timing.of([images / each for each in seconds[1:]])


def peer(steps: int, runs: int) -> Timing | None:
    """Return the images per second of two processes together, side by side."""
    python = os.environ.get("BFL_PEERS_PYTHON")
    if not python:
        return None
    script = Path(__file__).with_name("peers") / "bayesian_torch_resnet20.py"
    command = [python, str(script), "train", "--steps", str(steps), "--runs", str(runs)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    rates = [json.loads(p.communicate()[0])["images_per_second"] for p in processes]
    return Timing.of([sum(together) for together in zip(*rates, strict=True)])


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
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=3200, help="images of all clients (3200)")
    given = parser.parse_args()
    app = FlowerApp.read(ROOT)
    rates: dict[str, list[Timing]] = {"float32": [], "bfloat16": []}
    others: list[Timing] = []
    alone = {}
    for _ in range(2):
        with RayEngine(app, BACKEND, most_clients=CLIENTS) as engine:
            for precision, timings in rates.items():
                timings.append(ours(engine, given.images, precision, given.runs))
        time.sleep(2)
        other = peer(10, given.runs)
        if other:
            others.append(other)
    for precision in rates:
        alone[precision] = convolutions(precision)
    rows, notes = [], [f"{CLIENTS} clients, {given.images} random images, batch {BATCH}"]
    for (precision, timings), goal in zip(rates.items(), (2.0, 2.8), strict=True):
        mine = _merged(timings)
        what = f"round of {CLIENTS} clients, {precision}"
        if others:
            theirs = _merged(others)
            ratio = mine.median / theirs.median
            rows.append(Row(what, "img/s", mine, "bayesian-torch, float32", theirs, ratio, goal))
        limit = Timing.of([alone[precision]])
        name = f"the convolutions alone, {precision}"
        rows.append(Row(what, "img/s", mine, name, limit, mine.median / limit.median))
    if not others:
        notes.append("bayesian-torch was not measured: BFL_PEERS_PYTHON is not set")
    title = "A federation's round with Flipout ResNet-20"
    publish(Report("training_round", title, rows, notes), given.output)


def _merged(timings: list[Timing]) -> Timing:
    return Timing(
        statistics.mean(t.median for t in timings),
        min(t.low for t in timings),
        max(t.high for t in timings),
        sum(t.runs for t in timings),
    )


if __name__ == "__main__":
    main()
