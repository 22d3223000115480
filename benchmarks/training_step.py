"""A training step of ResNet-20 by inference, precision and threads; --profile tells its parts.

Each variant runs in a process of its own, since a process computes with one number of threads.

    python benchmarks/training_step.py --output FILE
    python benchmarks/training_step.py --profile "float32, 1 thread"
"""

from __future__ import annotations

import collections
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import IMAGE_SHAPE, Report, Timing, last_lines, options, publish, row

STEPS, BATCH = 20, 32
POINTS = "points in place of Flipout, 1 thread"
IVON = "IVON in place of Flipout, 1 thread"
LAST = "Flipout in the last layer alone, 1 thread"
VARIANTS: dict[str, tuple[Any, ...]] = {
    "float32, 1 thread": ("float32", False, 1),
    POINTS: ("float32", False, 1, "resnet20", "deterministic"),
    IVON: ("float32", False, 1, "resnet20", "ivon"),
    LAST: ("float32", False, 1, "resnet20", "flipout", "last"),
    "bfloat16, 1 thread": ("bfloat16", False, 1),
    "float32 compiled by XLA, 1 thread": ("float32", True, 1),
    "float32, 2 threads": ("float32", False, 2),
    "float32, 1 thread, two processes side by side, each": ("float32", False, 1),
}
"""Precision, compiled or not, threads; then model, inference, layers if others than Flipout's."""

AGAINST_POINTS = {IVON: 0.91, LAST: None}
"""Variants that are compared with points as well, and the goals."""

SIDE_BY_SIDE = "float32, 1 thread, two processes side by side, each"

REFERENCE = "float32, 1 thread"


def trained(
    precision: str,
    compiled: bool,
    threads: int,
    model: str = "resnet20",
    inference: str = "flipout",
    layers: str = "all",
) -> Any:
    """Return a call that trains for some steps, traced already."""
    from bfl.keras import configure

    configure(threads)
    from bfl.configuration import resolve
    from bfl.learning.networks.network import build_network
    from bfl.learning.priors import NormalPrior
    from bfl.learning.training import LocalTask
    from bfl.learning.training.trainer import LocalTrainer

    words = {"model": model, "inference": inference, "precision": precision}
    if inference == "ivon":
        words["optimizer"] = "ivon"
    if layers != "all":
        words["variational-layers"] = layers
    configuration = resolve({**words, "strategy": "naive-weighted-averaging"})
    network = build_network(
        configuration.architecture,
        configuration.inference,
        IMAGE_SHAPE,
        10,
        configuration.keys.precision,
    )
    trainer = LocalTrainer(
        network, BATCH, configuration.augmentation, configuration.optimizer, compiled=compiled
    )
    count = STEPS * BATCH
    images = np.random.default_rng(0).integers(0, 256, (count, *IMAGE_SHAPE), dtype=np.uint8)
    task = LocalTask(
        received=network.initial_posterior(0),
        prior=NormalPrior(0.0, 10.0),
        examples=np.arange(count),
        epochs=1,
        learning_rate=1e-3,
        key_labels=(1, 0),
        seed=0,
    )
    trainer.train(images, np.arange(count) % 10, task)
    return lambda: trainer.train(images, np.arange(count) % 10, task)


def milliseconds(variant: str, runs: int) -> list[float]:
    """Return the milliseconds a step of some runs of a variant, in a process of its own, or two."""
    command = [sys.executable, __file__, "--variant", variant, "--runs", str(runs)]
    lines = last_lines(command, 2 if variant == SIDE_BY_SIDE else 1)
    return [taken for line in lines for taken in json.loads(line)]


def profile(variant: str) -> None:
    """Print the kinds of operations of a variant's step, and their milliseconds."""
    from bfl.keras import tf

    train = trained(*VARIANTS[variant])
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        train()
        tf.profiler.experimental.stop()
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        (path,) = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
    spent: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        names = {key: value.name.rpartition(":")[2] for key, value in plane.event_metadata.items()}
        for line in plane.lines:
            if "python" not in line.name:
                for event in line.events:
                    spent[names[event.metadata_id]] += event.duration_ps
    for name, picoseconds in spent.most_common(30):
        print(f"{picoseconds / 1e9 / STEPS:8.2f} ms  {name}")


def main() -> None:
    """Run the benchmark, one variant of it, or a profile."""
    parser = options(__doc__)
    parser.add_argument("--variant", choices=VARIANTS, help="print one variant's milliseconds")
    parser.add_argument("--profile", choices=VARIANTS, help="profile one variant")
    given = parser.parse_args()
    if given.profile:
        profile(given.profile)
        return
    if given.variant:
        train = trained(*VARIANTS[given.variant])
        taken = []
        for _ in range(given.runs):
            started = time.perf_counter()
            train()
            taken.append((time.perf_counter() - started) * 1000 / STEPS)
        print(json.dumps(taken))
        return
    os.environ.pop("BFL_CPUS", None)
    timings = {variant: Timing.of(milliseconds(variant, given.runs)) for variant in VARIANTS}
    reference = timings.pop(REFERENCE)
    rows = [row(variant, "ms", taken, REFERENCE, reference) for variant, taken in timings.items()]
    points = timings[POINTS]
    rows += [
        row(variant, "ms", timings[variant], POINTS, points, goal)
        for variant, goal in AGAINST_POINTS.items()
    ]
    notes = [f"random images {IMAGE_SHAPE}, batch {BATCH}; the variants run one after the other"]
    title = "A training step of Flipout ResNet-20"
    publish(Report("training_step", title, rows, notes), given.output)


if __name__ == "__main__":
    main()
