#!/usr/bin/env python
"""Check that every strategy, weighting and inference gives the same bits on every engine.

    python scripts/reproducibility.py [INFERENCE ...]

Each combination that goes together, with these inferences if some are given, runs for two rounds
of three clients of unequal size, on the serial engine and on Flower's Ray engine with one, two and
three actors. Exit status 0 if each combination has one posterior SHA-256.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.weightings import weightings
from bfl.configuration import resolve
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.engine.flower.simulation import RayEngine
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.learning.inferences import inferences

ROOT = Path(__file__).resolve().parent.parent
CLIENTS, ENGINES = 3, ("serial", "1", "2", "3")
WORKER = "--worker"
SETTINGS: dict[str, Any] = {
    "model": "resnet8",
    "partition": "dirichlet",
    "min-partition-size": 8,
    "rounds": 2,
    "local-epochs": 1,
    "batch-size": 8,
    "evaluate-every": 0,
    "mc-samples": 1,
    "clients": CLIENTS,
}


def combinations(dataset: str, inference_names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the configuration of each combination that is not refused."""
    for inference in inference_names:
        for strategy in pooling_rules.names():
            for weighting in weightings.names():
                chosen = {"inference": inference, "strategy": strategy, "weighting": weighting}
                values = {**SETTINGS, **chosen, "dataset": dataset}
                if inference == "ivon":
                    values["optimizer"] = "ivon"
                try:
                    resolve(values)
                except ConfigurationError:  # point weights and a rule for Gaussian ones
                    continue
                yield values


def digests(engine: str, folder: Path, names: list[str]) -> dict[str, str]:
    """Return the posterior SHA-256 of each combination on one engine."""
    app = FlowerApp.read(ROOT)
    with ExitStack() as stack:
        if engine == "serial":
            run = partial(run_serially, app, num_supernodes=CLIENTS, backend_config={})
        else:
            backend = {"init_args": {"num_cpus": int(engine)}}
            ray = stack.enter_context(RayEngine(app, backend, most_clients=CLIENTS))
            run = partial(ray.run, num_supernodes=CLIENTS)
        found = {}
        for values in combinations(f"npz:{folder}/small.npz", names):
            name = "-".join(values[key] for key in ("inference", "strategy", "weighting"))
            run({**values, "output-dir": str(folder / engine), "name": name})
            found[name] = RunFolder(folder / engine / name).posterior()[0].digest()
    return found


def main() -> int:
    """Return 0 if all engines agree; a process of its own for each engine."""
    if sys.argv[1:2] == [WORKER]:
        engine, folder, names = sys.argv[2], Path(sys.argv[3]), sys.argv[4:]
        (folder / f"{engine}.json").write_text(json.dumps(digests(engine, folder, names)))
        return 0
    names = [inferences.get(name).name for name in sys.argv[1:] or inferences.names()]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        generator = np.random.default_rng(0)
        labels = np.arange(96) % 4
        images = generator.integers(0, 255, (96, 8, 8, 1)).astype(np.uint8)
        np.savez(folder / "small.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
        found = {}
        for engine in ENGINES:
            command = [sys.executable, __file__, WORKER, engine, str(folder), *names]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found[engine] = json.loads((folder / f"{engine}.json").read_text())
            print(f"engine {engine}: {len(found[engine])} combinations", flush=True)
    differing = [
        name for name in found["serial"] if len({found[engine][name] for engine in ENGINES}) > 1
    ]
    distinct = len(set(found["serial"].values()))
    print(f"{len(found['serial'])} combinations, {distinct} different posteriors")
    print("the same bits on every engine" if not differing else f"DIFFERENT: {differing}")
    return 1 if differing or not distinct else 0


if __name__ == "__main__":
    sys.exit(main())
