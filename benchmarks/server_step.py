"""FedBE's server step by its parts: samples, teachers' predictions, and the student's training.

ConvNet, 21 teachers (10 samples, the average, 10 clients), 20 epochs on 10,000 images of 32 x 32.
The authors' code took 357 s for it on a machine of two cores.

    python benchmarks/server_step.py [--images 10000] [--epochs 20]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from bfl.aggregation.client_models import ClientModels
from bfl.aggregation.refinements import refinements
from bfl.aggregation.refinements.distillation import Distillation, sharpened
from bfl.aggregation.samplers import samplers
from bfl.aggregation.server import DistillationTask
from bfl.configuration import resolve
from bfl.data.datasets import Dataset
from bfl.data.datasets.server_data import ServerData
from bfl.engine.resources import cpus_of_this_process
from bfl.experiments.run.evaluator import Evaluator
from bfl.experiments.run.server import NetworkServer
from bfl.keras import configure
from bfl.posteriors import Posterior

CLIENTS = 10


def random_data(images: int) -> tuple[Dataset, ServerData]:
    """Return random images, of which the server has as many as asked for."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (images, 32, 32, 3)).astype(np.uint8)
    labels = np.arange(images, dtype=np.int64) % 10
    names = tuple(map(str, range(10)))
    dataset = Dataset("random", pixels, labels, pixels[:10], labels[:10], names)
    return dataset, ServerData(pixels, None, labels[:0])


def client_models(start: Posterior) -> ClientModels:
    """Return clients around a first model."""
    generator = np.random.default_rng(1)
    clients = [
        Posterior(
            start.mean,
            start.variance,
            start.point + generator.normal(0, 0.01, start.point.size).astype(np.float32),
        )
        for _ in range(CLIENTS)
    ]
    return ClientModels(clients, range(CLIENTS), [4_000] * CLIENTS, start, start)


def main() -> None:
    """Print the seconds of each part, the second time, when nothing is traced any more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    configure(cpus_of_this_process())
    settings: dict[str, Any] = {"distillation-epochs": given.epochs}
    configuration = resolve(
        {"strategy": "fedbe", "inference": "deterministic", "model": "convnet", **settings}
    )
    dataset, data = random_data(given.images)
    evaluator = Evaluator(configuration, dataset)
    server = NetworkServer(configuration, dataset, data, evaluator.predictor)
    refinement = refinements.create("distillation", settings)
    assert isinstance(refinement, Distillation)
    models = client_models(evaluator.initial)
    for turn in ("with tracing", "afterwards"):
        begun = time.perf_counter()
        members = list(refinement.members(models, samplers.create("gaussian"), 0, 1))
        drawn = time.perf_counter()
        predicted = server.predict_ensemble(members, labels=("ensemble", 1))
        targets = sharpened(predicted.mean_probability, 2.0).astype(np.float32)
        taught = time.perf_counter()
        plan = refinement.plan(given.images, 10)
        server.distil(DistillationTask(models.average, targets, plan, 0, ("distillation", 1)))
        done = time.perf_counter()
        print(
            f"{turn}: {len(members)} members drawn in {drawn - begun:.1f} s, their predictions of "
            f"{given.images} images {taught - drawn:.1f} s, {len(plan.rates)} steps of the student "
            f"{done - taught:.1f} s; in all {done - begun:.1f} s"
        )


if __name__ == "__main__":
    main()
