#!/usr/bin/env python
"""A study's runs on corrupted test images, by strength, and on near and far foreign images.

    python scripts/shift.py FOLDER --data-dir FOLDER    # evaluates runs under Dirichlet 0.5 first
    python scripts/shift.py                             # writes tables and figure alone

The first folder is that of ``bfl study configs/which-rule/digits-picked.toml``, the other has
``fashion_mnist.npz``. The numbers go to ``shift.csv`` and ``foreign.csv`` in
``docs/results/which-rule-digits-picked``; what is there is not made again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from pages import section_written

import bfl
from bfl.data.datasets.foreign import CORRUPTIONS
from bfl.experiments.results.figures.style import new_figure, png
from bfl.experiments.results.table import markdown_table

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
PAGE, NUMBERS = RESULTS / "which-rule.md", RESULTS / "which-rule-digits-picked" / "shift.csv"
FOREIGN = NUMBERS.with_name("foreign.csv")
FIGURE = RESULTS / "which-rule-shift.png"
PARTITION = "dirichlet-0.5"
SOURCES = "rotated+inverted+noised+fashion-mnist"
SCORES = ["feature-density", "energy", "max-logit", "predictive-entropy"]
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


def evaluate(study: Path, data_dir: str) -> None:
    """Add the rows of runs that are not there yet: by corruption and strength, and by source."""
    frame = pd.read_csv(NUMBERS) if NUMBERS.exists() else pd.DataFrame(columns=PLACE)
    foreign = pd.read_csv(FOREIGN) if FOREIGN.exists() else pd.DataFrame()
    done = set(frame[PLACE].itertuples(index=False, name=None))
    for strategy, method in METHODS.items():
        for path in sorted((study / "runs").glob(f"{strategy}_{PARTITION}_seed-*")):
            run = {"method": method, "partition": PARTITION, "seed": int(path.name.split("-")[-1])}
            if tuple(run.values()) in done or not (path / "predictions.npz").exists():
                continue
            found = bfl.load(path).evaluate(
                "digits", foreign=SOURCES, corruptions="+".join(CORRUPTIONS), data_dir=data_dir
            )
            rows = [
                {**run, "corruption": name, "strength": strength}
                | {metric: round(by_metric[metric][strength], 6) for metric in METRICS}
                for name, by_metric in found["corruptions"].items()
                for strength in range(6)
            ]
            areas = [
                {**run, "source": name, "group": "near" if source["near"] else "far"}
                | {score: round(source["uncertainties"][score]["auroc"], 6) for score in SCORES}
                for name, source in found["foreign"]["sources"].items()
            ]
            frame = pd.concat([frame, pd.DataFrame(rows)])
            foreign = pd.concat([foreign, pd.DataFrame(areas)])
            foreign.to_csv(FOREIGN, index=False)
            frame.to_csv(NUMBERS, index=False)
            print(*run.values(), flush=True)


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


def foreign_table() -> list[str]:
    """Return the lines of the page's table of AUROCs, each run's a mean over a group's sources."""
    runs = pd.read_csv(FOREIGN).groupby([*PLACE, "group"])[SCORES].mean()
    both = runs.groupby(["method", "group"])
    shown = both.mean().map("{:.3f}".format) + " ± " + both.std().map("{:.3f}".format)
    places = [(method, group) for method in METHODS.values() for group in ("near", "far")]
    return markdown_table(shown.reindex(places).reset_index(), 4).splitlines()


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
    parser.add_argument("--data-dir", default="", help="the folder of fashion_mnist.npz")
    given = parser.parse_args()
    if given.folder:
        evaluate(given.folder, given.data_dir)
    text = section_written(PAGE.read_text(encoding="utf-8"), "shift", table())
    PAGE.write_text(section_written(text, "foreign", foreign_table()), encoding="utf-8")
    FIGURE.write_bytes(draw())
    print("\n".join([*table(), "", *foreign_table()]))


if __name__ == "__main__":
    main()
