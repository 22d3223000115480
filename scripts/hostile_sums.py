#!/usr/bin/env python
"""Measure what a client that lies about its labels in the closing round's sums can do.

    python scripts/hostile_sums.py [SEEDS]    # 3 by default

All clients train honestly. In the closing round the first few say of each image of class c
that it is of class C − 1 − c, which no check of bfl's finds.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from typing import Any
from unittest import mock

import pandas as pd

import bfl
from clients import client_app
from clients.closing import closed as honest

SETTING: dict[str, Any] = {
    "strategy": "fedavg",
    "inference": "deterministic",
    "model": "resnet8",
    "clients": 10,
    "local-epochs": 1,
    "rounds": 20,
    "evaluate-every": 0,
    "figures": "none",
    "closing": "bayesian-head+feature-density",
    "ood-dataset": "rotated",
}
PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {"partition": "iid"},
    "dirichlet-0.5": {"partition": "dirichlet", "alpha": 0.5},
    "2-class": {"partition": "shards", "shards-per-client": 2},
}
SHOWN = {
    "accuracy": "accuracy",
    "negative-log-likelihood": "NLL",
    "expected-calibration-error": "ECE",
    "ood-rotated-auroc": "AUROC, rotated",
}


def metrics(liars: int, values: dict[str, Any]) -> dict[str, float]:
    """Return the metrics of a run in whose closing round the first clients lie."""

    def closed(message: Any, context: Any, task: Any, client: Any) -> Any:
        if task.partition_id < liars:
            client = replace(client, labels=client.classes - 1 - client.labels)
        return honest(message, context, task, client)

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(client_app, "closed", closed),
    ):
        given = {**SETTING, **values, "output-dir": folder}
        return dict(bfl.run(given, backend="serial", verbose=False).metrics)


def main() -> None:
    """Print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rows = []
    for name, partition in PARTITIONS.items():
        for seed in range(seeds):
            for liars in (0, 1, 2):
                found = metrics(liars, {**partition, "seed": seed})
                shown = {title: found[metric] for metric, title in SHOWN.items()}
                before = found["before-closing-negative-log-likelihood"]
                rows.append({"partition": name, "hostile": liars, "NLL before": before, **shown})
    means = pd.DataFrame(rows).groupby(["partition", "hostile"], sort=False).mean()
    print(means.round(3).to_csv(sep="|"))


if __name__ == "__main__":
    main()
