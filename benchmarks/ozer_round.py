#!/usr/bin/env python
"""A round of Ozer et al.'s experiment on Flower's Ray engine: seconds, and memory of all processes.

    python benchmarks/ozer_round.py --output FILE --runs 3

The images are random, in the shapes of CIFAR-10. The other side is quoted: the authors' PyTorch
pipeline, measured once on a machine of this kind.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from measuring import MemoryOf, Report, Row, Timing, options, publish, watched, write_images

from bfl.experiments.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
CLIENTS, EXAMPLES, ROUNDS, WARM_UP = 10, 5000, 4, 1
CPUS = 2
ENGINES = {
    f"Ray, {CPUS} actors of one CPU": {"init_args": {"num_cpus": CPUS}},
    f"serial, one process of {CPUS} CPUs": {"client_resources": {"num_cpus": CPUS}},
}
"""Two ways to use as many CPUs as the peer: Flower's backend configuration of each."""
PEER = "authors' PyTorch pipeline, 2 processes (quoted)"
PEER_SECONDS, PEER_MEGABYTES = 30.0, 3100.0
GOAL_SECONDS, GOAL_MEMORY = 4.0, 2.0
CONFIGURATION = (
    'model="convolutional" inference="reparameterization" variational-layers="dense" '
    'prior-scale=1.0 optimizer="sgd" momentum=0.9 weight-decay=1e-5 learning-rate=0.01 '
    'strategy="aalv" weighting="train-size" batch-size=64 local-epochs=1 '
    'augmentation="crop-flip" evaluate-every=0 mc-samples=1'
)


def simulate(engine: str, dataset: str, folder: Path, name: str) -> tuple[list[float], MemoryOf]:
    """Run a simulation; return the seconds of its rounds after the warm-up, and the memory."""
    command = [
        sys.executable,
        "-c",
        "import sys; from bfl.commands.flower_simulation import main; sys.exit(main())",
        f"--app={ROOT}",
        f"--num-supernodes={CLIENTS}",
        f"--backend={engine.split(',')[0].lower()}",
        f"--backend-config={json.dumps(ENGINES[engine])}",
        f"--run-config={CONFIGURATION}",
        f'--run-config=dataset="{dataset}" rounds={ROUNDS} output-dir="{folder}" name="{name}"',
    ]
    memory = watched(command)
    rounds = RunFolder(folder / name).rounds()
    return [entry["seconds"] for entry in rounds[WARM_UP:]], memory


def measure(runs: int) -> list[Row]:
    """Return the rows of the table, the engines taking turns."""
    seconds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    memories: dict[str, list[MemoryOf]] = {engine: [] for engine in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        dataset = write_images(Path(folder), CLIENTS * EXAMPLES)
        for run in range(runs):
            for number, engine in enumerate(ENGINES):
                taken, memory = simulate(engine, dataset, Path(folder), f"run-{run}-{number}")
                seconds[engine] += taken
                memories[engine].append(memory)
    rows = []
    for engine in ENGINES:
        resident = [memory.resident for memory in memories[engine]]
        proportional = [memory.proportional for memory in memories[engine]]
        rows += [
            _row(f"a round ({engine})", "s", seconds[engine], PEER_SECONDS, GOAL_SECONDS),
            _row(f"memory, RSS ({engine})", "MB", resident, PEER_MEGABYTES, GOAL_MEMORY),
            _row(f"memory, PSS ({engine})", "MB", proportional, PEER_MEGABYTES, GOAL_MEMORY),
        ]
    return rows


def _row(what: str, unit: str, ours: list[float], peer: float, goal: float) -> Row:
    timing = Timing.of(ours)
    return Row(what, unit, timing, PEER, Timing.of([peer]), peer / timing.median, goal)


def main() -> None:
    """Measure, print the table, and write it if asked to."""
    given = options(__doc__).parse_args()
    notes = (
        f"{CLIENTS} clients, IID, {EXAMPLES} random images of 32 x 32 x 3 each; the convolutional "
        "network with variational dense layers and the local reparameterization trick, batch 64, "
        "E = 1, crops and flips, SGD with momentum.",
        "A round is training and pooling; the first, in which networks are built and traced, is "
        "left out.",
        "Memory is that of all processes (the command, Ray's, the actors) at its greatest, from "
        "start to end: RSS counts pages that processes share in each of them, PSS once.",
        "The peer's figures were measured on a machine of this kind with CIFAR-10 itself and are "
        "quoted: 30 s (29 to 31) and 3.1 GB with 2 processes of one thread, 45 to 52 s and 1.8 GB "
        "with 1; its code trains with the same batches, epochs and optimizer.",
    )
    report = Report(
        "ozer_round", "A round of Ozer et al. (2022), 10 clients", measure(given.runs), notes
    )
    publish(report, given.output)


if __name__ == "__main__":
    main()
