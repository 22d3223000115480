#!/usr/bin/env python
"""The price of the closing round, in CPU seconds: docs/results/closing/price.json.

python scripts/closing_price.py FOLDER          # on the Fashion-MNIST in FOLDER, in minutes
python scripts/closing_price.py --curvatures    # of sums and steps by curvature alone
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np

PRICE = Path(__file__).resolve().parent.parent / "docs" / "results" / "closing" / "price.json"
EXAMPLES, ROUNDS, REPEATS = 10000.0, 2, 3
FEATURES, CLASSES = 64, 10
"""Width in and out of ResNet-8's last layer."""


def measured_curvatures() -> dict[str, float]:
    """Return CPU seconds of a round of sums over features, with the server's step."""
    from bfl.closing.base import Examples, with_one
    from bfl.closing.bayesian_head import BayesianHead
    from bfl.closing.chain import folded, measured, told
    from bfl.closing.closed import begun
    from bfl.closing.curvature import Form

    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=int(EXAMPLES))
    features = rng.normal(size=(CLASSES, FEATURES))[labels] / 2 + rng.normal(
        size=(len(labels), FEATURES)
    )
    examples = Examples(with_one(features), labels, CLASSES)
    known = begun(0.1 * rng.normal(size=(FEATURES + 1, CLASSES)), from_head=True)
    found = {}
    for form in get_args(Form):
        chain, seconds = (BayesianHead(head_curvature=form),), []
        for _ in range(REPEATS):
            start = time.process_time()
            sums = measured(chain, told(chain, known), examples, examples)
            folded(chain, known, sums, FEATURES, CLASSES)
            seconds.append(time.process_time() - start)
        found[form] = median(seconds)
    return found


def measured_price(data_dir: str) -> dict[str, Any]:
    """Return CPU seconds of a round over those of FedAvg's, and of the closing over 20 rounds."""
    from bfl.experiments.results.environment import describe_environment

    base = {
        "dataset": "fashion-mnist",
        "data_dir": data_dir,
        "train_examples": EXAMPLES,
        "model": "resnet8",
        "local_epochs": 1,
        "evaluate_every": 0,
        "server_evaluates": False,
    }
    averaging = {"strategy": "fedavg", "inference": "deterministic"}
    asked = {
        "FedAvg": averaging,
        "flipout": {"strategy": "ws", "inference": "flipout"},
        "closing": {**averaging, "closing": "bayesian-head+feature-density"},
    }
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    for keys in asked.values():  # what is built once in a process is no price
        cpu_seconds({**base, **keys, "rounds": 1, "train_examples": 500.0})
    for _ in range(REPEATS):
        once = {name: cpu_seconds({**base, **keys, "rounds": 1}) for name, keys in asked.items()}
        for name in ("FedAvg", "flipout"):
            many = cpu_seconds({**base, **asked[name], "rounds": 1 + ROUNDS})
            seconds[name].append((many - once[name]) / ROUNDS)
        seconds["closing"].append(once["closing"] - once["FedAvg"])
    round_ = median(seconds["FedAvg"])
    flipout = median(seconds["flipout"]) / round_
    return {
        "FedAvg": 1.0,
        **dict.fromkeys(("WS", "NWA", "conflation"), flipout),
        "closing": median(seconds["closing"]) / (20 * round_),
        "curvatures": measured_curvatures(),
        "cpu-seconds": seconds,
        "environment": describe_environment(),
    }


def cpu_seconds(keys: Mapping[str, Any]) -> float:
    """Return the CPU seconds of a run in this process."""
    import bfl

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    with tempfile.TemporaryDirectory() as folder:
        begun = used()
        bfl.run(keys, backend="serial", output_dir=folder)
        return used() - begun


def main() -> None:
    """Measure, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="has fashion_mnist.npz")
    parser.add_argument("--curvatures", action="store_true", help="measures these alone")
    given = parser.parse_args()
    if not given.curvatures and not given.folder:
        parser.error("a folder with fashion_mnist.npz, or --curvatures")
    numbers = (
        {**json.loads(PRICE.read_text(encoding="utf-8")), "curvatures": measured_curvatures()}
        if given.curvatures
        else measured_price(given.folder)
    )
    PRICE.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
