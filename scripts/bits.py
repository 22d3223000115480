#!/usr/bin/env python
"""Record or compare the digests of runs' posteriors: has a change of code changed them?

    python scripts/bits.py record    # before the change: writes docs/results/bits.json
    python scripts/bits.py compare   # after it: exit status 1 and the names of the runs that differ

    git worktree add ../before COMMIT
    python scripts/bits.py record --checkout ../before    # the digests of another commit

Thirteen small runs of digits on the serial engine: rules, weightings, inferences, priors, defences,
pre-training, kept optimizer states, distillation. The digests depend on the kind of processor and
on the versions of the libraries, so both are recorded, and a comparison on another machine is
refused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bfl.experiments.results.environment import describe_environment

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "docs" / "results" / "bits.json"
MACHINE = ("processor", "python", "tensorflow", "tensorflow-probability", "tf-keras", "numpy")
"""Entries of an environment on which the digests depend."""

BASE: dict[str, Any] = {
    "strategy": "ws",
    "model": "resnet8",
    "clients": 3,
    "rounds": 2,
    "closing": "none",
    "local-epochs": 1,
    "train-examples": 300,
    "test-examples": 60,
    "mc-samples": 2,
    "evaluate-mc-samples": 1,
    "partition": "dirichlet",
    "alpha": 1.0,
}
RUNS: dict[str, dict[str, Any]] = {
    "weighted-sum": {},
    "naive-averaging-distance": {"strategy": "nwa", "weighting": "distance"},
    "linear-pool-max-discrepancy": {"strategy": "lp", "weighting": "max-discrepancy"},
    "conflation-equal": {"strategy": "conflation", "weighting": "equal"},
    "weighted-conflation-crops": {"strategy": "wc", "augmentation": "crop-flip"},
    "log-linear-two-of-three": {"strategy": "llp", "fraction-train": 0.67},
    "consolidation-previous-global": {"strategy": "dwc", "prior": "previous-global"},
    "population-pooling": {"strategy": "ppa", "population-size": 100},
    "log-variance-reparameterization-sgd": {
        "strategy": "aalv",
        "inference": "reparameterization",
        "optimizer": "sgd",
        "learning-rate": 0.01,
    },
    "dropout-kept-optimizer": {
        "strategy": "nwa",
        "inference": "mc-dropout",
        "optimizer-state": "keep",
    },
    "deterministic-pre-trained": {
        "strategy": "nwa",
        "inference": "deterministic",
        "pretrain-examples": 60,
        "pretrain-epochs": 2,
        "train-examples": 0,  # 47e44b6 pre-trained on others than the clients had
    },
    "hostile-winsorized": {"attack": "sign-flip", "attackers": 1, "defence": "winsorization"},
    "distilled-ensemble": {
        "strategy": "fedbe",
        "inference": "deterministic",
        "model": "convnet",
        "dataset": "digits",
        "image-size": 32,
        "image-channels": 3,
        "server-examples": 60,
        "distillation-epochs": 3,
        "swa-start": 2.0,
        "swa-cycle": 1,
    },
}


def digest(name: str, settings: dict[str, Any], folder: Path, checkout: Path = ROOT) -> str:
    """Return the SHA-256 of the posterior that a run of a checkout's code ends with."""
    values = {**BASE, **settings, "output-dir": str(folder), "name": name}
    pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
    command = ["flower-simulation", "--app", str(checkout), "--backend", "serial"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    subprocess.run(
        [*command, "--run-config", pairs], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    lines = (folder / name / "rounds.jsonl").read_text().splitlines()
    return str(json.loads(lines[-1])["posterior-sha256"])


def digests(checkout: Path = ROOT) -> dict[str, str]:
    """Return the digest of each run, and show it."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in RUNS.items():
            found[name] = digest(name, settings, Path(folder), checkout)
            print(f"{found[name]}  {name}", flush=True)
    return found


def machine() -> dict[str, Any]:
    """Return what the digests depend on besides the code."""
    environment = describe_environment()
    return {key: environment[key] for key in MACHINE}


def commit(checkout: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Return 0 if the digests are recorded, or are those that were."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose code is run")
    given = parser.parse_args()
    checkout = given.checkout.resolve()
    if given.action == "record":
        record = {
            "git-commit": commit(checkout),
            "machine": machine(),
            "digests": digests(checkout),
        }
        RECORDED.write_text(json.dumps(record, indent=2) + "\n")
        return 0
    recorded = json.loads(RECORDED.read_text())
    if recorded["machine"] != machine():
        print(f"not compared: {RECORDED.name} was recorded on another kind of machine")
        return 2
    now = digests(checkout)
    differing = [name for name, value in recorded["digests"].items() if now.get(name) != value]
    print(f"{len(now)} runs; {', '.join(differing) or 'none'} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
