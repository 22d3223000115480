"""FedBE's server step by its parts, and its memory with ResNet-56.

21 teachers (10 samples, the average, 10 clients), of which each predicts the server's images once,
and a student. ConvNet for time: 20 epochs on 10,000 images of 32 x 32, for which the authors' code
took 357 s on a machine of two cores. ResNet-56 for memory: what does not grow with the images is
there after a few hundred. Each in a process of its own, after one on a few images, which traces.

    python benchmarks/server_step.py --output FILE [--images 10000] [--epochs 20]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from measuring import Report, Row, Timing, options, publish

CLIENTS = 10
FULL = {"images": 10_000, "epochs": 20}
AUTHORS_SECONDS, MEGABYTES = 357.0, 8_000.0
WARM_UP = {"images": 256, "epochs": 2}
OF_MEMORY = {"images": 384, "epochs": 2}
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
    from bfl.aggregation.client_models import ClientModels
    from bfl.posteriors import Posterior

    generator = np.random.default_rng(1)
    moved = [start.point + generator.normal(0, 0.01, start.point.size) for _ in range(CLIENTS)]
    clients = [Posterior(start.mean, start.variance, p.astype(np.float32)) for p in moved]
    clients = [manifest.raised(client) for client in clients]
    return ClientModels(clients, range(CLIENTS), [4_000] * CLIENTS, start, start, manifest)


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what a call gives, and its seconds, by the clock and of all CPUs."""
    clock, cpus = time.perf_counter(), time.process_time()
    result = work()
    taken = {"seconds": time.perf_counter() - clock, "cpu": time.process_time() - cpus}
    return result, taken


def server_step(model: str, images: int, epochs: int) -> dict[str, dict[str, float]]:
    """Make one step and return the seconds of its parts."""
    from bfl.aggregation.refinements.distillation import Distillation, sharpened
    from bfl.aggregation.samplers import samplers
    from bfl.aggregation.server import DistillationTask
    from bfl.configuration import resolve
    from bfl.experiments.run.evaluator import Evaluator
    from bfl.experiments.run.server import NetworkServer

    values: dict[str, Any] = {"strategy": "fedbe", "inference": "deterministic", "model": model}
    configuration = resolve(values)
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
    targets = sharpened(predicted.mean_probability, 2.0).astype(np.float32)
    task = DistillationTask(models.average, targets, plan, 0, ("distillation", 1))
    _, learnt = measured(lambda: server.distil(task))
    return dict(zip(PARTS, (drawn, taught, learnt), strict=True))


def cell(model: str, images: int, epochs: int) -> None:
    """Print the parts of a step, traced before, and the process's greatest memory, as JSON."""
    from bfl.engine.resources import cpus_of_this_process
    from bfl.keras import configure

    configure(cpus_of_this_process())
    server_step(model, **WARM_UP)
    parts = server_step(model, images, epochs)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(json.dumps({"parts": parts, "megabytes": memory}))


def in_a_process(model: str, images: int, epochs: int, threads: int = 0) -> dict[str, Any]:
    """Return what ``cell`` prints in a process of its own, on so many threads; 0: on all."""
    asked = ["--cell", model, "--images", str(images), "--epochs", str(epochs)]
    command = [sys.executable, __file__, *asked]
    environment = {**os.environ, **({"BFL_CPUS": str(threads)} if threads else {})}
    output = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=environment
    ).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def time_rows(found: dict[str, Any], images: int, epochs: int) -> list[Row]:
    """Return the lines of the time, the whole and its parts, in proportion to the full step."""
    scale = {
        "members drawn": 1.0,
        "their predictions": FULL["images"] / images,
        "the student": FULL["images"] * FULL["epochs"] / (images * epochs),
    }
    parts = {
        part: {kind: value * scale[part] for kind, value in taken.items()}
        for part, taken in found["parts"].items()
    }
    whole = sum(taken["seconds"] for taken in parts.values())
    cpu = sum(taken["cpu"] for taken in parts.values())
    quoted = Timing.of([AUTHORS_SECONDS])
    ratio = AUTHORS_SECONDS / whole
    name = "authors' PyTorch code, quoted"
    one = Timing.of
    return [
        Row("ConvNet, the whole step", "s", one([whole]), name, quoted, ratio, 4.0),
        Row("ConvNet, the whole step, CPU", "s", one([cpu])),
        *(Row(f"ConvNet, {p}", "s", one([taken["seconds"]])) for p, taken in parts.items()),
        *(Row(f"ConvNet, {p}, CPU", "s", one([taken["cpu"]])) for p, taken in parts.items()),
    ]


def main() -> None:
    """Run the benchmark, or one cell of it."""
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=FULL["images"])
    parser.add_argument("--epochs", type=int, default=FULL["epochs"])
    parser.add_argument("--cell", help="measure one network in this process")
    given = parser.parse_args()
    if given.cell:
        cell(given.cell, given.images, given.epochs)
        return
    asked = given.images, given.epochs
    rows = time_rows(in_a_process("convnet", *asked), *asked)
    whole, *_ = time_rows(in_a_process("convnet", *asked, threads=1), *asked)
    rows.append(replace(whole, what="ConvNet, the whole step, one thread", goal=None))
    most = Timing.of([in_a_process("resnet56", **OF_MEMORY)["megabytes"]])
    limit = Timing.of([MEGABYTES])
    ratio = MEGABYTES / most.median
    rows.append(Row("ResNet-56, memory, RSS", "MB", most, "limit", limit, ratio, 1.0))
    notes = [
        "10 samples, the average and 10 clients; 20 epochs on 10,000 images of 32 x 32 x 3, batch "
        "128, augmented, with models averaged. CPU: seconds of all CPUs, which other work on the "
        "machine does not add to.",
        "The authors' 357 s were measured on another machine of two cores.",
        "One thread is what a run has by default (server-threads).",
        f"Memory: the greatest of the server's process, with {OF_MEMORY['images']} images.",
    ]
    if (given.images, given.epochs) != (FULL["images"], FULL["epochs"]):
        notes.append(f"In proportion, from {given.epochs} epochs on {given.images} images.")
    title = "FedBE's server step, 21 teachers"
    publish(Report("server_step", title, rows, notes), given.output)


if __name__ == "__main__":
    main()
