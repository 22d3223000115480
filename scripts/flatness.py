#!/usr/bin/env python
"""Check that memory and time stay flat over many rounds of small clients, in one Ray simulation.

    python scripts/flatness.py [ROUNDS] [SLOWING]      200 and 1.2 by default

Exit status 0 if the memory of the server and of the actors grows by less than 5 % after round 20
and the last 20 rounds take at most SLOWING times as long as rounds 21 to 40, by medians.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bfl.commands.flower_simulation import main as simulate
from bfl.experiments.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
WARM, WINDOW, MOST_GROWTH = 20, 20, 1.05


def run(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Return the records of a simulation of 8 clients of 16 examples each."""
    generator = np.random.default_rng(0)
    labels = np.arange(128) % 4
    images = generator.integers(0, 255, (128, 8, 8, 1)).astype(np.uint8)
    np.savez(folder / "small.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    config = (
        f'dataset="npz:{folder}/small.npz" model="resnet8" closing="none" '
        f"rounds={rounds} local-epochs=1 batch-size=16 evaluate-every=1 "
        f'output-dir="{folder}" name="run"'
    )
    status = simulate(["--app", str(ROOT), "--num-supernodes", "8", "--run-config", config])
    if status:
        sys.exit(status)
    return RunFolder(folder / "run").rounds()


def main() -> int:
    """Run, print the figures and return the exit status."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    most_slowing = float(sys.argv[2]) if len(sys.argv) > 2 else 1.2
    with tempfile.TemporaryDirectory() as folder:
        records = run(Path(folder), rounds)
    flat = True
    for who in ("server-memory", "client/memory"):
        before = statistics.median(r[who] for r in records[WARM : WARM + 5])
        after = statistics.median(r[who] for r in records[-5:])
        flat &= after < MOST_GROWTH * before
        print(f"{who}: {before:.0f} MB after round {WARM}, {after:.0f} MB at the end")
    first = statistics.median(r["seconds"] for r in records[WARM : WARM + WINDOW])
    last = statistics.median(r["seconds"] for r in records[-WINDOW:])
    flat &= last <= most_slowing * first
    print(f"seconds a round: {first:.3f} after round {WARM}, {last:.3f} at the end")
    print("flat" if flat else "NOT FLAT")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
