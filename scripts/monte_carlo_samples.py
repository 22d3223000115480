#!/usr/bin/env python
"""Measure how figures move with the number of Monte Carlo samples of an evaluation.

    python scripts/monte_carlo_samples.py            # prints what is committed
    python scripts/monte_carlo_samples.py --make     # makes the runs, and writes numbers and page

Three small federations on digits, one for each rule; the posterior that each leaves behind is
evaluated by 2, 10 and 50 samples, with several sets of draws each. Nothing but the draws differs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from pages import section_written

from bfl.experiments.results.table import markdown_table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "monte-carlo-samples.md"
NUMBERS = PAGE.with_suffix("") / "numbers.json"

RULES = ("naive-weighted-averaging", "linear-pool", "weighted-sum-of-normals")
SAMPLES = (2, 10, 50)
SETS_OF_DRAWS = 5
METRICS = ("accuracy", "negative-log-likelihood")
KEYS: Mapping[str, Any] = {
    "dataset": "digits",
    "model": "resnet8",
    "clients": 10,
    "rounds": 4,
    "closing": "none",
    "local_epochs": 2,
    "evaluate_every": 0,
    "mc_samples": 2,
    "seed": 0,
}


def judged(rule: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Make a run, and yield what each number of samples says of its posterior."""
    import bfl
    from bfl.configuration import resolve
    from bfl.data.datasets import cached_dataset
    from bfl.evaluation.metrics import evaluate
    from bfl.experiments.run.evaluator import Evaluator

    run = bfl.run(**KEYS, strategy=rule, backend="serial", output_dir=folder, name=rule)
    configuration = resolve(run.configuration)
    keys = configuration.keys
    dataset = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
    evaluator = Evaluator(configuration, dataset)
    for samples in SAMPLES:
        values: dict[str, list[float]] = {metric: [] for metric in METRICS}
        for draws in range(SETS_OF_DRAWS):
            predictions = evaluator.predict(
                run.posterior, samples=samples, purpose=f"draws-{draws}"
            )
            found = evaluate(predictions, dataset.test_labels, configuration.values)
            for metric in METRICS:
                values[metric].append(found[metric])
        yield {"rule": rule, "samples": samples, **values}


def make() -> dict[str, Any]:
    """Return the numbers of all rules, with the settings and the machine."""
    from bfl.experiments.results.environment import describe_environment

    with tempfile.TemporaryDirectory() as folder:
        rows = [row for rule in RULES for row in judged(rule, Path(folder))]
    return {"keys": dict(KEYS), "rows": rows, "environment": describe_environment()}


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the page's table: means over the sets of draws, least to greatest."""
    lines = [
        [row["rule"], row["samples"]]
        + [
            cell
            for values in (row[metric] for metric in METRICS)
            for cell in (f"{fmean(values):.4f}", f"{min(values):.4f} to {max(values):.4f}")
        ]
        for row in rows
    ]
    heads = ["rule", "samples", "accuracy", "least to greatest", "NLL", "least to greatest"]
    return markdown_table(pd.DataFrame(lines, columns=heads), 5).splitlines()


def moves(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return, a line a rule, by how much the means move from 2 to 10 and from 10 to 50 samples."""
    lines = []
    for rule in dict.fromkeys(row["rule"] for row in rows):
        told = []
        for before, after in pairwise(row for row in rows if row["rule"] == rule):
            accuracy, likelihood = (fmean(after[m]) - fmean(before[m]) for m in METRICS)
            told.append(
                f"from {before['samples']} to {after['samples']} samples accuracy "
                f"{100 * accuracy:+.1f} points and NLL {likelihood:+.3f}"
            )
        lines.append(f"- {rule}: {', '.join(told)}.")
    return lines


def page_with(text: str, numbers: Mapping[str, Any]) -> str:
    """Return the page's text with the table of these numbers."""
    rows = numbers["rows"]
    return section_written(text, "numbers", [*table(rows), "", *moves(rows)])


def main() -> None:
    """Print the committed table, or make it anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", action="store_true", help=f"writes {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()
    if given.make:
        numbers = make()
        NUMBERS.parent.mkdir(exist_ok=True)
        NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")
    rows = json.loads(NUMBERS.read_text(encoding="utf-8"))["rows"]
    print("\n".join([*table(rows), "", *moves(rows)]))


if __name__ == "__main__":
    main()
