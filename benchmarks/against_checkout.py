#!/usr/bin/env python
"""Measure a round here against another checkout of this project, such as an earlier commit.

    git worktree add ../before COMMIT
    python benchmarks/against_checkout.py --other ../before --output FILE --runs 7

Each measurement is a process of its own, which runs in the one checkout and then in the other, by
turns. Seconds of the processor are compared, since a busy machine changes them less than those of a
clock, and the least of a process's three, without Python's garbage collections, which fall now on
the one side and now on the other. Rounds that train are timed by the clock.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from measuring import Report, Row, Timing, options, publish

ROOT = Path(__file__).resolve().parent.parent
TIMED = """
import gc, json, resource, sys
from contextlib import redirect_stdout
def used():
    taken = resource.getrusage(resource.RUSAGE_SELF)
    return taken.ru_utime + taken.ru_stime
def timed(work):
    gc.collect()
    gc.disable()
    before = used()
    work()
    taken = used() - before
    gc.enable()
    return taken
"""
ROUNDS = """
import engine_overhead
engine_overhead.SERIAL_ROUNDS = {rounds} - 1
work = lambda: engine_overhead.serial({gaussians}, {points})
work()
print(json.dumps(min(timed(work) for _ in range(3))))
"""
TRAINING = """
from bfl.engine.flower import FlowerApp, run_serially
from bfl.configuration.pairs import parse_pairs
from pathlib import Path
values = parse_pairs('model="resnet8" rounds={rounds} local-epochs=1 evaluate-every=0 '
                     'mc-samples=1 output-dir="{folder}" name="run"')
with redirect_stdout(sys.stderr):
    run_serially(FlowerApp.read(Path({checkout!r})), values, 5, {{}})
lines = (Path("{folder}") / "run" / "rounds.jsonl").read_text().splitlines()
print(json.dumps(min(json.loads(line)["seconds"] for line in lines[1:])))
"""
KINDS = {
    "100 clients, 50 rounds, 1 k point parameters": (50, 0, 1000),
    "100 clients, 6 rounds, a Gaussian over 0.5 M parameters": (6, 500_000, 0),
}
TRAINED_ROUNDS = 8
ON_RAY = ("10000 examples in all, 100 clients", "20 examples a client, 100 clients")
"""Federations of ``federation_scale.py``, by the beginnings of their lines."""


def seconds_in(checkout: Path, code: str) -> float:
    """Return the processor's seconds that a program in a checkout prints, on one CPU."""
    paths = os.pathsep.join([str(checkout), str(checkout / "benchmarks")])
    done = subprocess.run(
        [sys.executable, "-c", TIMED + code],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": paths, "BFL_CPUS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{checkout}: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def sending(checkout: Path, rounds: int, gaussians: int, points: int) -> float:
    """Return the seconds of rounds in which clients send back what they got."""
    code = ROUNDS.format(rounds=rounds, gaussians=gaussians, points=points)
    return seconds_in(checkout, code)


def training(checkout: Path) -> float:
    """Return the seconds, by the clock, of the quickest round after the first."""
    with tempfile.TemporaryDirectory() as folder:
        code = TRAINING.format(checkout=str(checkout), rounds=TRAINED_ROUNDS, folder=folder)
        return seconds_in(checkout, code)


def on_ray(checkout: Path) -> list[float]:
    """Return the seconds of rounds, by the clock, of federations on two Ray actors."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "scale.json"
        paths = os.pathsep.join([str(checkout), str(checkout / "benchmarks")])
        command = [sys.executable, str(checkout / "benchmarks" / "federation_scale.py")]
        done = subprocess.run(
            [*command, "--runs", "1", "--clients", "100", "--output", str(output)],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{checkout}: {done.stderr[-2000:]}")
        rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    seconds = {row["what"]: row["ours"]["median"] for row in rows}
    return [float(seconds[f"{federation}: a round"]) for federation in ON_RAY]


def compared(what: str, measured: Iterable[tuple[float, float]], unit: str = "s of CPU") -> Row:
    """Return a row of pairs of seconds: here and there."""
    measured = list(measured)
    ours, theirs = zip(*measured, strict=True)
    ratio = statistics.median(there / here for here, there in measured)
    return Row(what, unit, Timing.of(ours), "before", Timing.of(theirs), ratio, 0.95)


def main() -> None:
    """Measure, print the table, and write it if asked to."""
    parser = options(__doc__)
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    given = parser.parse_args()
    other = given.other.resolve()
    rows = []
    for what, sizes in KINDS.items():
        pairs = [(sending(ROOT, *sizes), sending(other, *sizes)) for _ in range(given.runs)]
        rows.append(compared(what, pairs))
    what = f"ResNet-8 on digits, 5 clients: the quickest of {TRAINED_ROUNDS} rounds"
    pairs = [(training(ROOT), training(other)) for _ in range(given.runs)]
    rows.append(compared(what, pairs, "s"))
    federations = [(on_ray(ROOT), on_ray(other)) for _ in range(given.runs)]
    for number, what in enumerate(ON_RAY):
        seconds = [(ours[number], theirs[number]) for ours, theirs in federations]
        rows.append(compared(f"Ray, 2 actors, {what}: a round", seconds, "s"))
    commit = subprocess.run(
        ["git", "-C", str(other), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    notes = [
        f"Seconds of the processor on the serial engine, at this commit and at {commit}, in turn; "
        "the ratio is the median of the pairs' ratios. Rounds that train (on digits, and those of "
        "federation_scale on Ray) are timed by the clock."
    ]
    title = "A round against that of an earlier commit"
    publish(Report("against_checkout", title, rows, notes), given.output)


if __name__ == "__main__":
    main()
