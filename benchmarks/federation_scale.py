#!/usr/bin/env python
"""Seconds a round and memory with 10, 100 and 1,000 clients.

    python benchmarks/federation_scale.py --output FILE --runs 1

Once with a fixed number of examples in all, of which each client has its part, and once with a
fixed number for each client. The images are random.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from measuring import Report, Row, options, publish, row, simulation_command, watched, write_images

from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.client_metrics import NAMESPACE, TRAIN_SECONDS

ACTORS = 2
ROUNDS, WARM_UP = 4, 1
CONFIGURATION = (
    'inference="reparameterization" variational-layers="dense" strategy="ws" '
    'weighting="train-size" batch-size=32 local-epochs=1 learning-rate=0.001 evaluate-every=0 '
    f"mc-samples=1 rounds={ROUNDS}"
)
FLAT = 0.8
"""The goal of flatness: a client may cost a quarter more among the most than among the fewest."""


@dataclass
class Measured:
    """Measurements of some runs with one number of clients.

    Attributes:
        rounds: Seconds of the rounds after the first.
        training: Of these, the seconds in which an actor trained, on average.
        server: The server's resident memory after the last round, in MB.
        everything: The proportional memory of all processes at its greatest, in MB.
    """

    rounds: list[float]
    training: list[float]
    server: list[float]
    everything: list[float]


def measure(clients: int, examples: int, model: str, backend: str, runs: int) -> Measured:
    """Run federations of so many clients and examples, and return what they took."""
    measured = Measured([], [], [], [])
    with tempfile.TemporaryDirectory() as folder:
        dataset = write_images(Path(folder), examples)
        for run in range(runs):
            command = simulation_command(
                f"--num-supernodes={clients}",
                f"--backend={backend}",
                f'--backend-config={{"init_args": {{"num_cpus": {ACTORS}}}}}',
                f"--run-config={CONFIGURATION}",
                f'--run-config=model="{model}" dataset="{dataset}" '
                f'output-dir="{folder}" name="run-{run}"',
            )
            memory = watched(command)
            rounds = RunFolder(Path(folder) / f"run-{run}").rounds()
            actors = ACTORS if backend == "ray" else 1
            for entry in rounds[WARM_UP:]:
                measured.rounds.append(entry["seconds"])
                measured.training.append(
                    entry[f"{NAMESPACE}{TRAIN_SECONDS}"] * entry["clients"] / actors
                )
            measured.server.append(rounds[-1]["server-memory"])
            measured.everything.append(memory.proportional)
    return measured


def rows_of(kind: str, measured: dict[int, Measured]) -> list[Row]:
    """Return the rows of one kind of data; the goals are held by the greatest number of clients."""
    fewest, most = min(measured), max(measured)
    first, few = measured[fewest], f"{fewest} clients"
    rows = []
    for clients, taken in measured.items():
        goal = FLAT if clients == most and most > fewest else None
        what = f"{kind}, {clients} clients"
        rows += [
            row(f"{what}: a round", "s", taken.rounds, "its training", taken.training),
            row(
                f"{what}: a client besides its training",
                "ms",
                _beside(clients, taken),
                few,
                _beside(fewest, first),
                goal,
            ),
            row(f"{what}: server", "MB", taken.server, few, first.server, goal),
            row(f"{what}: all processes (PSS)", "MB", taken.everything, few, first.everything),
        ]
    return rows


def _beside(clients: int, taken: Measured) -> list[float]:
    """Return the milliseconds a client in which the actors did not train."""
    pairs = zip(taken.rounds, taken.training, strict=True)
    return [1e3 * (seconds - training) / clients for seconds, training in pairs]


def main() -> None:
    """Measure, print the table, and write it if asked to."""
    parser = options(__doc__)
    parser.set_defaults(runs=1)
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 100, 1000])
    parser.add_argument("--examples", type=int, default=10_000, help="in all, where that is fixed")
    parser.add_argument("--per-client", type=int, default=20, help="where that is fixed")
    parser.add_argument("--model", default="convolutional", help="the network")
    parser.add_argument("--backend", default="ray", choices=("ray", "serial"))
    given = parser.parse_args()
    rows: list[Row] = []
    for kind, size in (
        (f"{given.examples} examples in all", lambda clients: given.examples),
        (f"{given.per_client} examples a client", lambda clients: given.per_client * clients),
    ):
        measured = {
            clients: measure(clients, size(clients), given.model, given.backend, given.runs)
            for clients in given.clients
        }
        rows += rows_of(kind, measured)
    notes = (
        f"{given.model}, images of 32 x 32 x 3, batch 32, E = 1, weighted sum of "
        f"normals by train size; engine: {given.backend}, {ACTORS} actors of one CPU; the first "
        "round, in which actors build and trace, is left out.",
        "A client besides its training: a round's seconds less those in which an actor trained on "
        "average, over the number of clients.",
        "Memory of the server's process (RSS) after the last round; of all processes with shared "
        "pages counted once (PSS), the most of any moment.",
    )
    publish(
        Report("federation_scale", "Federations of up to 1,000 clients", rows, notes), given.output
    )


if __name__ == "__main__":
    main()
