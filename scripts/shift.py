#!/usr/bin/env python
"""Accuracy, NLL and calibration of a study's runs on corrupted test images, by strength.

    python scripts/shift.py FOLDER    # evaluates the runs under Dirichlet 0.5 first
    python scripts/shift.py           # writes table and figure alone

``FOLDER`` is that of ``bfl study configs/which-rule/digits-picked.toml``. The numbers go to
``docs/results/which-rule-digits-picked/shift.csv``; what is there is not made again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

import bfl
from bfl.experiments.results.figures.style import new_figure, png
from bfl.experiments.results.table import markdown_table, section_written

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
PAGE, NUMBERS = RESULTS / "which-rule.md", RESULTS / "which-rule-digits-picked" / "shift.csv"
FIGURE = RESULTS / "which-rule-shift.png"
PARTITION = "dirichlet-0.5"
CORRUPTIONS = "noise+blur+contrast+rotation"
METHODS = {
    "fedavg": "FedAvg",
    "ivon": "IVON",
    "ws": "WS",
    "mc-dropout": "MC dropout",
    "fedavg-40-rounds": "FedAvg, 40 rounds",
}
METRICS = {
    "accuracy": "accuracy (%)",
    "negative-log-likelihood": "NLL",
    "expected-calibration-error": "ECE",
}
PLACE = ["method", "partition", "seed"]


def evaluate(study: Path) -> None:
    """Add the rows of runs that are not there yet: one a corruption and strength."""
    frame = pd.read_csv(NUMBERS) if NUMBERS.exists() else pd.DataFrame(columns=PLACE)
    done = set(frame[PLACE].itertuples(index=False, name=None))
    for strategy, method in METHODS.items():
        for path in sorted((study / "runs").glob(f"{strategy}_{PARTITION}_seed-*")):
            seed = int(path.name.rpartition("-")[2])
            if (method, PARTITION, seed) in done or not (path / "predictions.npz").exists():
                continue
            found = bfl.load(path).evaluate("digits", corruptions=CORRUPTIONS)["corruptions"]
            rows = [
                {"method": method, "partition": PARTITION, "seed": seed, "corruption": name}
                | {"strength": strength}
                | {metric: round(by_metric[metric][strength], 6) for metric in METRICS}
                for name, by_metric in found.items()
                for strength in range(6)
            ]
            frame = pd.concat([frame, pd.DataFrame(rows)])
            frame.to_csv(NUMBERS, index=False)
            print(method, seed, flush=True)


def by_strength() -> pd.DataFrame:
    """Return mean and deviation over seeds, of each run's mean over corruptions."""
    frame = pd.read_csv(NUMBERS).astype({"strength": int})
    runs = frame.groupby([*PLACE, "strength"], sort=False)[[*METRICS]].mean()
    return runs.groupby(["method", "strength"], sort=False).agg(["mean", "std"])


def table() -> list[str]:
    """Return the lines of the page's table: a row a metric and method, a column a strength."""
    numbers, frames = by_strength(), []
    for metric, title in METRICS.items():
        scale, digits = (100, 1) if metric == "accuracy" else (1, 3)
        shown = [
            f"{scale * mean:.{digits}f} ± {scale * std:.{digits}f}"
            for mean, std in numbers[metric].to_numpy()
        ]
        frame = pd.Series(shown, numbers.index).unstack("strength").reindex(METHODS.values())
        frames.append(frame.rename_axis("method").reset_index().assign(metric=title))
    found = pd.concat(frames)
    return markdown_table(found[["metric", *found.columns.drop("metric")]], 6).splitlines()


def draw() -> bytes:
    """Return NLL and ECE by strength, a line a method, as a PNG file."""
    numbers, figure = by_strength(), new_figure(9.0, 3.6)
    for axes, metric in zip(figure.subplots(1, 2), [*METRICS][1:], strict=True):
        for place, (method, values) in enumerate(numbers[metric].groupby("method", sort=False)):
            strengths = values.index.get_level_values("strength") + 0.06 * (place - 2)
            axes.errorbar(strengths, values["mean"], values["std"], capsize=2, label=method)
        axes.set_xlabel("strength of the corruption (0: none)")
        axes.set_ylabel(METRICS[metric])
    figure.axes[0].set_yscale("log")
    figure.axes[1].legend()
    figure.tight_layout()
    return png(figure)


def main() -> None:
    """Evaluate the runs that are asked for, and write the table of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="the folder of a study's runs")
    given = parser.parse_args()
    if given.folder:
        evaluate(given.folder)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(section_written(text, "shift", table()), encoding="utf-8")
    FIGURE.write_bytes(draw())
    print("\n".join(table()))


if __name__ == "__main__":
    main()
