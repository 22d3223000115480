#!/usr/bin/env python
"""Table 5 of Ozer et al. (2022): a round's seconds, 100 clients, by aggregation and processes.

    python benchmarks/seconds_by_processes.py --output FILE --runs 3 --processes 1 2 5 10

Measured are the paper's numbers of processes, and two; each has a TensorFlow of its own in memory,
so ``--processes 1 2`` is for a smaller machine. The rows and settings are those of the study of
100 clients (configs/ozer2022/table3.toml), the images random and in the shapes of CIFAR-10.
"""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from measuring import ROOT, Report, Row, Timing, options, publish, row, write_images

from bfl.engine.flower.app import FlowerApp
from bfl.engine.flower.simulation import RayEngine
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.study import Choice, Study, read_study

STUDY = ROOT / "configs" / "ozer2022" / "table3.toml"
PUBLISHED = STUDY.parent / "published" / "table5.csv"
EXAMPLES, WARM_UP = 50_000, 1


def published() -> dict[tuple[str, str, int], float]:
    """Return the paper's seconds by model, aggregation and number of processes."""
    with PUBLISHED.open(encoding="utf-8", newline="") as stream:
        return {
            (line["model"], line["aggregation"], int(line["processes"])): float(
                line["seconds_per_round"]
            )
            for line in csv.DictReader(stream)
        }


def measure(
    study: Study,
    choice: Choice,
    engine: RayEngine,
    dataset: str,
    folder: Path,
    name: str,
    rounds: int,
) -> Timing:
    """Return the seconds of a row's rounds after the warm-up."""
    values = {
        **study.base,
        **choice.values,
        "dataset": dataset,
        "augmentation": "crop-flip",
        "rounds": WARM_UP + rounds,
        "evaluate-every": 0,
        "output-dir": str(folder),
        "name": name,
    }
    engine.run(values, int(study.base["clients"]))
    return Timing.of([entry["seconds"] for entry in RunFolder(folder / name).rounds()[WARM_UP:]])


def lines(
    choice: Choice, processes: Sequence[int], taken: Mapping[tuple[str, int], Timing]
) -> Iterator[Row]:
    """Yield a row's lines: the first next to the paper's, the others next to the first."""
    model, aggregation = choice.labels["model"], choice.labels["aggregation"]
    first, *others = processes
    alone = taken[choice.name, first]
    quoted = published().get((model, aggregation, first))
    yield Row(
        f"{model} {aggregation}, {first} process(es)",
        "s",
        alone,
        "the paper's, quoted" if quoted else "",
        Timing.of(quoted) if quoted else None,
    )
    for number in others:
        what = f"{model} {aggregation}, {number} process(es)"
        yield row(what, "s", taken[choice.name, number], f"with {first}", alone)


def notes(processes: Sequence[int], cpus: int) -> tuple[str, ...]:
    """Return what has to be known of the numbers."""
    quoted: dict[int, list[float]] = {}
    for (_, _, number), seconds in published().items():
        quoted.setdefault(number, []).append(seconds)
    others = ", ".join(
        f"with {number} processes {min(seconds):.1f} to {max(seconds):.1f} s"
        for number, seconds in quoted.items()
        if number != processes[0]
    )
    said = [
        f"100 clients with {EXAMPLES} random images in all, a tenth of the clients a round, "
        "E = 10; a round is training and pooling; the first, in which networks are built, is left "
        "out.",
        f"The paper's seconds come from a Xeon E5-2690 v3 with a Quadro P6000 ({others}), another "
        "kind of machine, so there is no ratio.",
    ]
    more = [number for number in processes if number > cpus]
    if more:
        said.append(
            f"{' and '.join(map(str, more))} processes share {cpus} CPUs: they show what more "
            "processes than CPUs cost, not what more CPUs give."
        )
    return tuple(said)


def main() -> None:
    """Measure, print the table, and write it if asked to."""
    parser = options(__doc__)
    parser.set_defaults(runs=3)
    parser.add_argument(
        "--processes", type=int, nargs="+", default=[1, 2, 5, 10], help="actors (1 2 5 10)"
    )
    given = parser.parse_args()
    study, app = read_study(STUDY), FlowerApp.read(ROOT)
    taken: dict[tuple[str, int], Timing] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        dataset = write_images(folder, EXAMPLES)
        for processes in given.processes:
            backend = {"init_args": {"num_cpus": processes}, "client_resources": {"num_cpus": 1}}
            with RayEngine(app, backend, most_clients=int(study.base["clients"])) as engine:
                for choice in study.rows:
                    name = f"{choice.name}-{processes}"
                    taken[choice.name, processes] = measure(
                        study, choice, engine, dataset, folder, name, given.runs
                    )
    rows = [line for choice in study.rows for line in lines(choice, given.processes, taken)]
    title = "Seconds a round by number of processes (Ozer et al., Table 5)"
    said = notes(given.processes, os.cpu_count() or 1)
    publish(Report("seconds_by_processes", title, rows, said), given.output)


if __name__ == "__main__":
    main()
