#!/usr/bin/env python
"""Measure the engines' cost besides training: serial against pfl, Ray against Flower itself.

    BFL_PEERS_PYTHON=... python benchmarks/engine_overhead.py --output FILE --runs 5

BFL_PEERS_PYTHON names the interpreter of an environment with pfl and PyTorch; without it there is
nothing to compare the serial engine with. ``--parts`` picks among ``serial``, ``ray`` and
``training``; with 1,000 clients Flower's own side alone takes minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import no_op
from measuring import (
    NO_PEER,
    ROOT,
    Report,
    Row,
    last_lines,
    options,
    peer,
    publish,
    row,
    simulation_command,
)

from bfl.engine.flower import new_context, new_run, simulation
from bfl.engine.flower.app import FlowerApp
from bfl.engine.flower.simulation import RayEngine
from bfl.engine.serial import SerialGrid
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.client_metrics import NAMESPACE, TRAIN_SECONDS

PARTS = ("serial", "ray", "training")
ACTORS = 2

SERIAL_CLIENTS, SERIAL_ROUNDS = 100, 5
SERIAL = {
    "1 k point parameters": (0, 1000, 1000),
    "a Gaussian over 1 k parameters (2 k numbers)": (1000, 0, 1000),
    "1 M point parameters": (0, 1_000_000, 1_000_000),
    "a Gaussian over 0.5 M parameters (1 M numbers)": (500_000, 0, 1_000_000),
    "a Gaussian over 1 M parameters (2 M numbers)": (1_000_000, 0, 1_000_000),
}
"""Sizes sent and pooled: Gaussian parameters, point parameters, and pfl's parameters."""

RAY_PARAMETERS = 275_000
"""Gaussian parameters, those of ResNet-20: 0.55 M numbers, 2.2 MB."""
FLAT = (100, 1000)

TRAINING_CLIENTS, TRAINING_ROUNDS = 10, 8
TRAINING = (
    'dataset="digits" model="resnet8" inference="flipout" strategy="ws" weighting="train-size" '
    f"rounds={TRAINING_ROUNDS} evaluate-every=0 mc-samples=1"
)


# Serial engine ---------------------------------------------------------------------------------


def serial(gaussians: int, points: int) -> list[float]:
    """Return the milliseconds a client of each round under the serial engine."""
    no_op.federation = no_op.Federation(SERIAL_CLIENTS, SERIAL_ROUNDS, gaussians, points)
    run = new_run({})
    grid = SerialGrid(no_op.client, SERIAL_CLIENTS, run, {})
    no_op.ours(grid=grid, context=new_context(run.run_id, {}))
    return [1e3 * seconds / SERIAL_CLIENTS for seconds in no_op.federation.seconds]


def pfl(command: list[str], parameters: int) -> list[float]:
    """Return the milliseconds a client of each round of pfl."""
    sizes = {"parameters": parameters, "clients": SERIAL_CLIENTS, "rounds": SERIAL_ROUNDS}
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    asked = [*command, *(f"--{key}={value}" for key, value in sizes.items())]
    milliseconds: list[float] = json.loads(last_lines(asked, env=clean)[0])["milliseconds"]
    return milliseconds


def serial_rows(runs: int) -> tuple[list[Row], list[str]]:
    """Return the rows of the serial engine, one CPU on both sides."""
    command = peer("pfl_engine.py")
    if not command:
        return [], [NO_PEER.format("The serial engine against pfl")]
    rows = []
    with mock.patch.dict(os.environ, {"BFL_CPUS": "1"}):
        for what, (gaussians, points, parameters) in SERIAL.items():
            ours: list[float] = []
            theirs: list[float] = []
            for _ in range(runs):
                ours += serial(gaussians, points)
                theirs += pfl(command, parameters)
            rows.append(
                row(
                    f"serial, {SERIAL_CLIENTS} clients: {what}",
                    "ms a client",
                    ours,
                    "pfl",
                    theirs,
                    0.5,
                )
            )
    note = (
        "Serial engine: milliseconds a client of a round in which clients send back what they got; "
        "one process and one thread on both sides. Ours writes and reads the messages that go over "
        "a network, checks each update and pools (mean, variance) in float64; pfl hands tensors on "
        "in memory and sums differences in float32."
    )
    return rows, [note]


# Ray engine ------------------------------------------------------------------------------------


def on_ray(engine: RayEngine, clients: int, rounds: int, *, ours: bool) -> list[float]:
    """Return the milliseconds a client of each round on Ray actors.

    Args:
        ours: This project's Strategy and engine; otherwise Flower's FedAvg and its own loop.
    """
    no_op.federation = no_op.Federation(clients, rounds, RAY_PARAMETERS, 0)
    engine.app = _app("ours" if ours else "flowers")
    own_loop = mock.patch.object(simulation, "hand_out_at_once", nullcontext)
    with nullcontext() if ours else own_loop:
        engine.run({}, clients)
    return [1e3 * seconds / clients for seconds in no_op.federation.seconds]


def _app(server: str) -> FlowerApp:
    return FlowerApp(ROOT, f"no_op:{server}", "no_op:client", {})


def ray_rows(runs: int, sizes: list[int]) -> tuple[list[Row], list[str]]:
    """Return the rows of the Ray engine."""
    ours: dict[int, list[float]] = {size: [] for size in sizes}
    theirs: dict[int, list[float]] = {size: [] for size in sizes}
    config = {"init_args": {"num_cpus": ACTORS}}
    with RayEngine(_app("ours"), config, most_clients=ACTORS) as engine:
        for size in sizes:
            for _ in range(max(1, min(runs, 500 // size))):
                rounds = 3 if size <= 100 else 2
                ours[size] += on_ray(engine, size, rounds, ours=True)
                theirs[size] += on_ray(engine, size, rounds, ours=False)
    rows = [
        row(f"Ray, {size} clients", "ms a client", ours[size], "Flower's FedAvg", theirs[size], 1.0)
        for size in sizes
    ]
    if set(FLAT) <= set(sizes):
        for name, taken, goal in (("ours", ours, 0.8), ("Flower's FedAvg", theirs, None)):
            few, many = FLAT
            what = f"Ray, flatness of {name}: {many} clients"
            rows.append(row(what, "ms a client", taken[many], f"{few} clients", taken[few], goal))
    notes = [
        f"Ray: milliseconds a client of a round on {ACTORS} actors, the first round left out; the "
        f"same clients, which send back a posterior of {2 * RAY_PARAMETERS / 1e6:.2f} M numbers, "
        "the same actors, and on the other side Flower's FedAvg on Flower's own engine."
    ]
    return rows, notes


# Training --------------------------------------------------------------------------------------


def training_rows(runs: int) -> tuple[list[Row], list[str]]:
    """Return the row of rounds with training: their seconds over those of the training alone."""
    ratios: list[float] = []
    for _ in range(runs):
        for entry in train()[2:]:
            pure = entry[f"{NAMESPACE}{TRAIN_SECONDS}"] * entry["clients"] / ACTORS
            ratios.append(entry["seconds"] / pure)
    what = f"Ray, {TRAINING_CLIENTS} clients that train: a round over its pure training"
    notes = [
        f"Training: ResNet-8 on digits, 5 epochs, {TRAINING_CLIENTS} clients on {ACTORS} actors. A "
        "round is divided by the seconds that its clients trained, as they measure them, over the "
        "number of actors; the first two rounds are left out."
    ]
    return [row(what, "×", ratios, "limit", 1.1, 1.0)], notes


def train() -> list[dict[str, float]]:
    """Run a simulation from the command line; return what its rounds have measured."""
    with tempfile.TemporaryDirectory() as folder:
        command = simulation_command(
            f"--num-supernodes={TRAINING_CLIENTS}",
            f'--backend-config={{"init_args": {{"num_cpus": {ACTORS}}}}}',
            f"--run-config={TRAINING}",
            f'--run-config=output-dir="{folder}" name="run"',
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        return RunFolder(Path(folder) / "run").rounds()


def main() -> None:
    """Measure, print the table, and write it if asked to."""
    parser = options(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument(
        "--clients", nargs="+", type=int, default=[10, 100, 500, 1000], help="on Ray"
    )
    given = parser.parse_args()
    rows: list[Row] = []
    notes: list[str] = []
    for part, measure in (
        ("serial", lambda: serial_rows(given.runs)),
        ("ray", lambda: ray_rows(given.runs, given.clients)),
        ("training", lambda: training_rows(given.runs)),
    ):
        if part in given.parts:
            more_rows, more_notes = measure()
            rows += more_rows
            notes += more_notes
    publish(Report("engine_overhead", "The engines' own cost", rows, notes), given.output)


if __name__ == "__main__":
    main()
