#!/usr/bin/env python
"""Rivals of a Bayesian rule that are made from another study's runs: ensembles, constant noise.

    python scripts/rivals.py FOLDER ensemble 5 dirichlet-0.5    # trains four members a run
    python scripts/rivals.py FOLDER constant                    # minutes: predicts alone
    python scripts/rivals.py FOLDER                             # writes the page's table alone

``FOLDER`` is that of ``bfl study configs/which-rule/digits-picked.toml``. The numbers go to
``docs/results/which-rule-digits-picked/rivals.csv``; what is there is not made again.

- ``ensemble M PARTITION``: the mean of the closed predictions of M federations of FedAvg that
  differ in their initial weights: same clients, data, rate and rounds (Lakshminarayanan et al.
  2017). The first is the study's own run.
- ``constant``: the posteriors of IVON and WS before their closing, with one variance for all
  weights, the mean of theirs, in place of each weight's own.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pages import section_written

import bfl
from bfl.evaluation.metrics import evaluate
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.table import markdown_table
from bfl.posteriors.spread import isotropic

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
PAGE, NUMBERS = RESULTS / "which-rule.md", RESULTS / "which-rule-digits-picked" / "rivals.csv"
CONSTANT = {"ivon": "IVON", "ws": "WS"}
SHOWN = {
    "accuracy (%)": "accuracy",
    "NLL": "negative-log-likelihood",
    "ECE": "expected-calibration-error",
}
FIRST_SEED = 1000
"""The seed of the second member's initial weights, which no run's seed is."""


def runs_of(study: Path, method: str) -> Iterator[tuple[str, int, Path]]:
    """Return partition, seed and folder of a method's runs, by the names that a study gives."""
    for path in sorted((study / "runs").glob(f"{method}_*_seed-*")):
        _, partition, seed = path.name.replace("partition-", "").split("_")
        if (path / "predictions.npz").exists():
            yield partition, int(seed.removeprefix("seed-")), path


def row(method: str, partition: str, seed: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of the table, of all metrics those that it shows."""
    place = {"method": method, "partition": partition, "seed": seed}
    return place | {metric: round(metrics[metric], 6) for metric in SHOWN.values()}


def member(first: Path, number: int, scratch: Path) -> Path:
    """Return the folder of an ensemble's member: the first's run from other initial weights."""
    folder = RunFolder(first)
    name = f"{first.name}_member-{number}"
    if not (scratch / name / "predictions.npz").exists():
        _, manifest = folder.posterior()
        begins = scratch / f"{name}-initial"
        begins.mkdir(parents=True, exist_ok=True)
        RunFolder(begins).write_posterior(
            manifest.initial_posterior(FIRST_SEED + number, 0.05), manifest
        )
        keys = tomllib.loads((first / "given-by-study.toml").read_text(encoding="utf-8"))
        keys |= {"name": name, "output-dir": str(scratch), "figures": "none", "ood-dataset": ""}
        keys["initial-posterior"] = str(begins / "posterior.npz")
        named = {key.replace("-", "_"): value for key, value in keys.items()}
        bfl.run(**named, backend="serial", verbose=False)
    return scratch / name


def ensembles(study: Path, members: int, partition: str, done: set[Any]) -> Iterator[Any]:
    """Return a row for each ensemble of a partition that is not there yet."""
    method = f"FedAvg, {members} federations"
    for its, seed, first in runs_of(study, "fedavg"):
        if its == partition and (method, partition, seed) not in done:
            others = [member(first, m, study / "members") for m in range(1, members)]
            read = [RunFolder(path).predictions() for path in (first, *others)]
            mean = np.mean([predictions.mean_probability for predictions, _ in read], axis=0)
            predictions, labels = read[0]
            pooled = replace(predictions, mean_probability=mean, log_mean_probability=np.log(mean))
            yield row(method, partition, seed, evaluate(pooled, labels))


def constants(study: Path, done: set[Any]) -> Iterator[Any]:
    """Return a row for each run of IVON and WS, before its closing and with a constant variance."""
    for strategy, title in CONSTANT.items():
        for partition, seed, path in runs_of(study, strategy):
            if (f"{title}, constant σ", partition, seed) in done:
                continue
            for method, constant in ((f"{title}, own σ", False), (f"{title}, constant σ", True)):
                with tempfile.TemporaryDirectory() as scratch:
                    copy = Path(scratch) / path.name
                    shutil.copytree(
                        path, copy, ignore=shutil.ignore_patterns("closing*", "figures")
                    )
                    posterior, manifest = RunFolder(path).posterior()
                    posterior = isotropic(posterior) if constant else posterior
                    RunFolder(copy).write_posterior(posterior, manifest)
                    metrics = bfl.load(copy).evaluate("digits")["metrics"]
                yield row(method, partition, seed, metrics)


def table() -> list[str]:
    """Return the lines of the page's table: means ± standard deviations over seeds."""
    groups = pd.read_csv(NUMBERS).groupby(["method", "partition"], sort=False)
    shown = groups.size().rename("runs").to_frame()
    for title, metric in SHOWN.items():
        scale, digits = (100, 2) if metric == "accuracy" else (1, 3)
        mean, deviation = scale * groups[metric].mean(), scale * groups[metric].std()
        shown[title] = [
            f"{m:.{digits}f} ± {d:.{digits}f}" for m, d in zip(mean, deviation, strict=True)
        ]
    return markdown_table(shown.reset_index(), 1 + len(SHOWN)).splitlines()


def main() -> None:
    """Make the rivals that are asked for, and print the table of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of a study's runs")
    parser.add_argument("words", nargs="*", help="ensemble M PARTITION; or constant")
    given = parser.parse_args()
    frame = pd.read_csv(NUMBERS)
    done = set(frame[["method", "partition", "seed"]].itertuples(index=False, name=None))
    made: Iterator[Any] = iter(())
    match given.words:
        case ["ensemble", members, partition]:
            made = ensembles(given.folder, int(members), partition, done)
        case ["constant"]:
            made = constants(given.folder, done)
    for each in made:
        frame = pd.concat([frame, pd.DataFrame([each])])
        frame.to_csv(NUMBERS, index=False)
        print(each, flush=True)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(section_written(text, "rivals", table()), encoding="utf-8")
    print("\n".join(table()))


if __name__ == "__main__":
    main()
