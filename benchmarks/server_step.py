"""FedBE's server step by its parts, and the memory of a run with ResNet-56.

21 teachers (10 samples, the average, 10 clients), of which each predicts the server's images once,
and a student. ConvNet for time: 20 epochs on 10,000 images of 32 x 32, for which the authors' code
took 357 s on a machine of two cores; in a process of its own, after a step on a few images, which
traces. ResNet-56 for memory: a round of 10 of 100 clients with so many images of the server's, one
epoch each, all in one process (the serial engine).

    python benchmarks/server_step.py --output FILE [--images 10000] [--epochs 20]
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Report, Row, last_lines, options, publish, row, write_images

CLIENTS = 10
FULL = {"images": 10_000, "epochs": 20}
AUTHORS_SECONDS, MEGABYTES = 357.0, 8_000.0
WARM_UP = {"images": 256, "epochs": 2}
RESNET56 = {
    "strategy": "fedbe",
    "inference": "deterministic",
    "model": "resnet56",
    "clients": 100,
    "fraction-train": 0.1,
    "rounds": 1,
    "local-epochs": 1,
    "batch-size": 40,
    "server-data": "held-back",
    "distillation-epochs": 1,
}
CIFAR10 = 50_000
"""Training images, of which the server gets its own."""
VARIATIONS = {"server-threads=2": {"threads": 2}, "one CPU": {"cpus": 1}}
PARTS = ("members drawn", "their predictions", "the student")


def random_data(images: int) -> tuple[Any, Any]:
    """Return random images, of which the server has as many as asked for."""
    from bfl.data.datasets import Dataset
    from bfl.data.datasets.server_data import ServerData

    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (images, 32, 32, 3)).astype(np.uint8)
    labels = np.arange(images, dtype=np.int64) % 10
    names = tuple(map(str, range(10)))
    dataset = Dataset("random", pixels, labels, pixels[:10], labels[:10], names)
    return dataset, ServerData(pixels, None, labels[:0])


def client_models(start: Any, manifest: Any) -> Any:
    """Return clients around a first model."""
    from bfl.aggregation.samplers import ClientModels
    from bfl.posteriors import Posterior

    generator = np.random.default_rng(1)
    moved = [start.point + generator.normal(0, 0.01, start.point.size) for _ in range(CLIENTS)]
    clients = [Posterior(start.mean, start.variance, p.astype(np.float32)) for p in moved]
    clients = [manifest.raise_to_minima(client) for client in clients]
    return ClientModels(clients, range(CLIENTS), [4_000] * CLIENTS, start, start, manifest)


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what a call gives, and its seconds, by the clock and of all CPUs."""
    clock, cpus = time.perf_counter(), time.process_time()
    result = work()
    taken = {"seconds": time.perf_counter() - clock, "cpu": time.process_time() - cpus}
    return result, taken


def server_step(images: int, epochs: int) -> dict[str, dict[str, float]]:
    """Make a ConvNet's step and return the seconds of its parts."""
    from bfl.aggregation.refinements.distillation import Distillation, sharpen
    from bfl.aggregation.samplers import samplers
    from bfl.aggregation.server import DistillationTask
    from bfl.configuration import resolve
    from bfl.experiments.run.evaluator import Evaluator, NetworkServer

    keys = {"strategy": "fedbe", "inference": "deterministic", "model": "convnet"}
    configuration = resolve(keys)
    dataset, data = random_data(images)
    evaluator = Evaluator(configuration, dataset)
    server = NetworkServer(configuration, dataset, data, evaluator.predictor)
    # So short a step would collect no model with the paper's cycle.
    cycle = 25 if images * epochs >= 10_000 else 3
    refinement = Distillation(distillation_epochs=epochs, swa_cycle=cycle)
    models = client_models(evaluator.initial, evaluator.manifest)
    gaussian, plan = samplers.create("gaussian"), refinement.plan(images, 10)
    members, drawn = measured(lambda: list(refinement.members(models, gaussian, 0, 1)))
    predicted, taught = measured(lambda: server.predict_ensemble(members, labels=("ensemble", 1)))
    targets = sharpen(predicted.mean_probability).astype(np.float32)
    task = DistillationTask(models.average, targets, plan, 0, ("distillation", 1))
    _, learnt = measured(lambda: server.distil(task))
    return dict(zip(PARTS, (drawn, taught, learnt), strict=True))


def time_cell(images: int, epochs: int, threads: int) -> dict[str, Any]:
    """Return the parts of a ConvNet's step, traced before, as a run's server computes it."""
    from bfl.engine.processes import cpus_of_this_process
    from bfl.keras import configure

    configure(threads, cpus_of_this_process())
    server_step(**WARM_UP)
    return server_step(images, epochs)


def memory_cell(images: int) -> float:
    """Return the greatest memory in MB of a process that makes a round with ResNet-56."""
    import bfl

    with tempfile.TemporaryDirectory() as scratch:
        keys = {key.replace("-", "_"): value for key, value in RESNET56.items()}
        keys |= {"dataset": write_images(Path(scratch), CIFAR10), "server_examples": float(images)}
        bfl.run(backend="serial", output_dir=scratch, name="run", **keys)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def in_a_process(cell: str, images: int, epochs: int, threads: int = 1, cpus: int = 0) -> Any:
    """Return what a cell prints in a process of its own, which has so many CPUs; 0: all."""
    asked = [f"--cell={cell}", f"--images={images}", f"--epochs={epochs}", f"--threads={threads}"]
    environment = {**os.environ, **({"BFL_CPUS": str(cpus)} if cpus else {})}
    return json.loads(last_lines([sys.executable, __file__, *asked], env=environment)[0])


def time_rows(found: dict[str, Any], images: int, epochs: int) -> list[Row]:
    """Return the lines of the time, the whole and its parts, in proportion to the full step."""
    scale = {
        "members drawn": 1.0,
        "their predictions": FULL["images"] / images,
        "the student": FULL["images"] * FULL["epochs"] / (images * epochs),
    }
    parts = {
        part: {kind: value * scale[part] for kind, value in taken.items()}
        for part, taken in found.items()
    }
    whole = sum(taken["seconds"] for taken in parts.values())
    cpu = sum(taken["cpu"] for taken in parts.values())
    name = "authors' PyTorch code, quoted"
    return [
        row("ConvNet, the whole step", "s", whole, name, AUTHORS_SECONDS, 4.0),
        row("ConvNet, the whole step, CPU", "s", cpu),
        *(row(f"ConvNet, {p}", "s", taken["seconds"]) for p, taken in parts.items()),
        *(row(f"ConvNet, {p}, CPU", "s", taken["cpu"]) for p, taken in parts.items()),
    ]


def main() -> None:
    """Run the benchmark, or one cell of it."""
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=FULL["images"])
    parser.add_argument("--epochs", type=int, default=FULL["epochs"])
    parser.add_argument("--cell", choices=("time", "memory"), help="measure one in this process")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    asked = given.images, given.epochs
    if given.cell:
        timed = given.cell == "time"
        print(json.dumps(time_cell(*asked, given.threads) if timed else memory_cell(given.images)))
        return
    rows = time_rows(in_a_process("time", *asked), *asked)
    for what, limits in VARIATIONS.items():
        whole, *_ = time_rows(in_a_process("time", *asked, **limits), *asked)
        rows.append(replace(whole, what=f"{whole.what}, {what}", goal=None))
    most = float(in_a_process("memory", *asked))
    rows.append(row("ResNet-56, a run's memory, RSS", "MB", most, "limit", MEGABYTES, 1.0))
    notes = [
        "10 samples, the average and 10 clients; 20 epochs on 10,000 images of 32 x 32 x 3, batch "
        "128, augmented, with models averaged. CPU: seconds of all CPUs, which other work on the "
        "machine does not add to.",
        "The authors' 357 s were measured on another machine of two cores.",
        "With server-threads=1, the default, an operation has one thread, and as many are computed "
        "side by side as there are CPUs, on which no bit depends; with 2 all of the machine's two.",
        "Memory: the greatest of a process that makes a round of 10 of 100 clients on the serial "
        f"engine, the server's and the clients' networks, with {given.images:,} images of the "
        f"server's, {CIFAR10 - given.images:,} of the clients' and one epoch each.",
    ]
    if (given.images, given.epochs) != (FULL["images"], FULL["epochs"]):
        notes.append(f"In proportion, from {given.epochs} epochs on {given.images} images.")
    title = "FedBE's server step, 21 teachers"
    publish(Report("server_step", title, rows, notes), given.output)


if __name__ == "__main__":
    main()
