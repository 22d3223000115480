"""A federation's round with Flipout ResNet-20 against bayesian-torch's training steps.

Ours is a whole round of Flower's Ray engine with two actors of one CPU each: messages, loading the
posterior, training, pooling. The peer's two processes of one thread each do training steps only.

    BFL_PEERS_PYTHON=... python benchmarks/training_round.py --output FILE
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import (
    NO_PEER,
    ROOT,
    Report,
    Row,
    Timing,
    last_lines,
    options,
    publish,
    write_images,
)
from measuring import peer as command_of_peer

from bfl.engine.flower.app import FlowerApp
from bfl.engine.flower.simulation import RayEngine
from bfl.experiments.results.run_folder import RunFolder

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
    options_of_peer = ("train", "--steps", str(steps), "--runs", "1")
    command = command_of_peer("bayesian_torch_resnet20.py", *options_of_peer)
    if not command:
        return None
    lines = last_lines(command, PROCESSES)
    return sum(json.loads(line)["images_per_second"][0] for line in lines)


LAYERS = (
    [(32, 3, 16, 1)]
    + [(32, 16, 16, 1)] * 6
    + [(32, 16, 32, 2)]
    + [(16, 32, 32, 1)] * 5
    + [(16, 32, 64, 2)]
    + [(8, 64, 64, 1)] * 5
)
"""Side of the images, channels before and after, strides."""


def convolve(precision: str, steps: int) -> float:
    """Return the images per second of a training step's convolutions and nothing else.

    Each layer's two convolutions, forwards, and their gradients by inputs and by kernels (the first
    layer's inputs need none), one after the other on one thread: what is left of a training step if
    all else cost nothing.
    """
    from bfl.keras import configure, tf

    configure(1)
    dtype = tf.as_dtype(precision)

    def tensor(*shape: int) -> Any:
        return tf.cast(tf.random.stateless_normal(shape, seed=(0, 0)), dtype)

    data = []
    for side, before, after, strides in LAYERS:
        inputs, kernel = tensor(BATCH, side, side, before), tensor(3, 3, before, after)
        gradient = tensor(BATCH, side // strides, side // strides, after)
        data.append((inputs, kernel, gradient, strides))

    def step() -> None:
        for index, (inputs, kernel, gradient, strides) in enumerate(data):
            shared: dict[str, Any] = {"strides": [1, strides, strides, 1], "padding": "SAME"}
            for _ in range(2):
                tf.raw_ops.Conv2D(input=inputs, filter=kernel, **shared)
                if index:
                    tf.raw_ops.Conv2DBackpropInput(
                        input_sizes=inputs.shape,
                        filter=kernel,
                        out_backprop=gradient,
                        **shared,
                    )
                tf.raw_ops.Conv2DBackpropFilter(
                    input=inputs, filter_sizes=kernel.shape, out_backprop=gradient, **shared
                )

    step()
    started = time.perf_counter()
    for _ in range(steps):
        step()
    return steps * BATCH / (time.perf_counter() - started)


def convolutions(precision: str, steps: int = 3) -> float:
    """Return the images per second that the network's convolutions alone allow, in two processes.

    They are Flipout's two a layer, with their gradients, and nothing between them.
    """
    command = [sys.executable, __file__, f"--convolutions={precision}", f"--steps={steps}"]
    return sum(map(float, last_lines(command, PROCESSES)))


def main() -> None:
    """Run the benchmark: each turn measures all sides once, and ratios are taken turn by turn."""
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=4800, help="images of all clients (4800)")
    parser.add_argument("--convolutions", help="a precision: print the rate of convolutions alone")
    parser.add_argument("--steps", type=int, default=10, help="steps of convolutions alone (10)")
    given = parser.parse_args()
    if given.convolutions:
        print(convolve(given.convolutions, given.steps))
        return
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
        notes.append(NO_PEER.format("bayesian-torch"))
    title = "A federation's round with Flipout ResNet-20"
    publish(Report("training_round", title, rows, notes), given.output)


def _row(what: str, mine: list[float], name: str, other: list[float], goal: float | None) -> Row:
    ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
    return Row(what, "img/s", Timing.of(mine), name, Timing.of(other), ratio, goal)


if __name__ == "__main__":
    main()
