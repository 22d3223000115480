#!/usr/bin/env python
"""Seconds of a deployment's round beyond its training, by clients, all on this machine.

    python benchmarks/deployed_round.py --output FILE --runs 5 --clients 2 4 8

A federation as `scripts/federation.py` makes it: TLS, keys, a warm worker for each client.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from measuring import ROOT, Report, Row, options, publish, row

from bfl.experiments.results.run_folder import RunFolder

WARM_UP = 2
"""Rounds in which the clients import and trace."""

GOALS = {4: 3.5}
"""Seconds beyond training, by the number of clients."""

SETTINGS = 'dataset="digits" model="resnet8" local-epochs=1 mc-samples=1 evaluate-every=0'


def rounds(clients: int, folder: Path, runs: int) -> list[tuple[float, float]]:
    """Return seconds and the slowest client's seconds of training, of rounds after the warm-up."""
    name = f"{clients}-clients"
    config = f'{SETTINGS} rounds={WARM_UP + runs} output-dir="{folder}" name="{name}"'
    script = str(ROOT / "scripts" / "federation.py")
    command = [sys.executable, script, "--clients", str(clients), "--run-config", config]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [
        (entry["seconds"], max(each["train-seconds"] for each in entry["per-client"]))
        for entry in RunFolder(folder / name).rounds()[WARM_UP:]
    ]


def line(clients: int, taken: Sequence[tuple[float, float]]) -> Row:
    """Return a number of clients' line: seconds beyond training, besides those of training."""
    what = f"{clients} clients, a round beyond its training"
    beyond = [whole - training for whole, training in taken]
    if goal := GOALS.get(clients):
        return row(what, "s", beyond, f"at most {goal:g} s", goal, 1.0)
    alone = [training for _, training in taken]
    return replace(row(what, "s", beyond, "its training, for scale", alone), ratio=None)


def main() -> None:
    """Measure, print the table, and write it if asked to."""
    parser = options(__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[2, 4, 8], help="(2 4 8)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        rows = [line(n, rounds(n, Path(scratch), given.runs)) for n in given.clients]
    notes = (
        "Flipout ResNet-8 on digits, one local epoch, no evaluation; server, clients and the proxy "
        f"share this machine, and each client's training is measured by itself; {WARM_UP} rounds "
        "of warm-up are left out.",
        "Beyond the slowest client's training are messages, pooling, checkpoints, and waiting of "
        "clients for a processor that another one has.",
    )
    title = "Seconds of a deployment's round beyond its training"
    publish(Report("deployed_round", title, rows, notes), given.output)


if __name__ == "__main__":
    main()
