#!/usr/bin/env python
"""Price of each method, and the figures of docs/results/which-rule.md.

    python scripts/which_rule.py --price digits [PAIRS]    # measures CPU seconds, in minutes
    python scripts/which_rule.py                           # draws the committed runs
    python scripts/which_rule.py --differences digits-picked   # prints what the page says of them

The runs are those of ``configs/which-rule/``. A
price is the training's CPU seconds over those of 20 rounds of FedAvg. One that ``price.json`` has
is not measured again.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from scipy.stats import ttest_1samp

import bfl
from bfl.configuration.settings import parse_pairs

ROOT = Path(__file__).resolve().parent.parent
RESULTS, STUDIES = ROOT / "docs" / "results", ROOT / "configs" / "which-rule"
NEAR = {"digits": "rotated", "fashion-mnist": "rotated", "cifar10": "tiny-imagenet200-subset"}
"""The near foreign images of each study."""

PRICE, FIGURE = "price.json", "accuracy-and-auroc.png"

MEASURED = {
    "digits": (5, 3),
    "digits-picked": (5, 3),
    "digits-rivals-picked": (5, 3),
    "fashion-mnist": (5, 3),
    "fashion-mnist-28-picked": (2, 1),
    "heart-picked": (20, 3),
    "heart-va-picked": (20, 1),
    "beijing-picked": (20, 3),
    "cifar10": (2, 1),
}
"""Rounds of a measurement, and measurements: few where a round is long."""

ALONE = {
    "closing": "none",
    "density-features": "",
    "ood-dataset": "",
    "figures": "none",
    "mc-samples": 1,
}
"""Training alone, as far as a run can do without the rest."""

FIRST = "FedAvg"
EQUALLY_TUNED = {
    "digits-picked": "digits",
    "digits-rivals-picked": "digits",  # beside the same runs of FedAvg
    "fashion-mnist-28-picked": "Fashion-MNIST",
    "heart-picked": "patients",
    "heart-va-picked": "patients",
    "beijing-picked": "stations",
}
ACCURACY = ("before-closing-accuracy", "accuracy")
SHOWN = (*ACCURACY, "before-closing-negative-log-likelihood", "negative-log-likelihood")


def cpu_seconds(keys: Mapping[str, Any]) -> float:
    """Return the CPU seconds of a run in this process."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    with tempfile.TemporaryDirectory() as folder:
        before = used()
        named = {key.replace("-", "_"): value for key, value in keys.items()}
        bfl.run(**named, backend="serial", output_dir=folder, verbose=False)
        return used() - before


def folder(name: str) -> Path:
    """Return the folder of a study's committed results."""
    return RESULTS / f"which-rule-{name}"


def measure(name: str, given: Mapping[str, Any]) -> None:
    """Write the prices that a study lacks, by method; each when it is known."""
    path = folder(name) / PRICE
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    price: dict[str, float] = {FIRST: 1.0, **known}
    runs = bfl.study(STUDIES / f"{name}.toml").study.runs
    cells = {run.labels["method"]: {**run.values, **ALONE, **given} for run in reversed(runs)}
    unit = int(cells[FIRST].pop("rounds"))
    for method, keys in cells.items():
        if method not in price:
            length = int(keys.pop("rounds", unit)) / unit
            # Twice the rounds of one method cost twice as much: that is not measured.
            price[method] = length
            if keys != cells[FIRST]:
                each = (_seconds_a_round(of, *MEASURED[name]) for of in (keys, cells[FIRST]))
                price[method] *= next(each) / next(each)
            path.write_text(json.dumps(price, indent=1) + "\n", encoding="utf-8")


def _seconds_a_round(keys: Mapping[str, Any], rounds: int, repeats: int) -> float:
    once, many = {**keys, "rounds": 1}, {**keys, "rounds": 1 + rounds}
    cpu_seconds(once)  # what is built once in a process is no price
    pairs = [(cpu_seconds(many), cpu_seconds(once)) for _ in range(repeats)]
    return median(more - less for more, less in pairs) / rounds


def print_differences(name: str) -> None:
    """Print paired differences from FedAvg's runs with 95 % intervals, and what the closing did."""
    runs = bfl.study(folder(name)).results.frame
    if (path := folder(name) / "rivals.csv").exists():
        runs = pd.concat([runs, pd.read_csv(path, dtype={"seed": str})])
    for (partition, own), metric in product(runs.groupby("partition"), SHOWN):
        values = own.pivot(index="seed", columns="method", values=metric).dropna(axis="columns")
        for base in (FIRST, f"{FIRST}, 40 rounds"):
            found = values.drop(columns=base).sub(values[base], axis="index")
            low, high = ttest_1samp(found, 0.0).confidence_interval()
            for method, *numbers in zip(found, found.mean(), low, high, strict=True):
                mean, least, most = (f"{number:+.4f}" for number in numbers)
                print(f"{partition}: {method} - {base}, {metric}: {mean} ({least} to {most})")
    change = runs["negative-log-likelihood"] - runs["before-closing-negative-log-likelihood"]
    risen = runs["seed"][change > 0.002]
    rises = f"{len(risen)} of {change.count()} runs, at most {change.max():+.3f}"
    print(f"closing: NLL {change.mean():+.3f}, by more than +0.002 in {rises}")
    print(f"of which by seed: {risen.value_counts().to_dict()}")
    print(change.groupby([runs["method"], runs["partition"]]).mean().unstack().round(3).to_string())


def draw(name: str) -> None:
    """Draw accuracy against AUROC of near foreign images, without and with the closing round."""
    from bfl.experiments.results.figures.style import COLORS, new_figure, styled

    price = json.loads((folder(name) / PRICE).read_text(encoding="utf-8"))
    area = (f"ood-{NEAR[name]}-before-closing-predictive-entropy-auroc", f"ood-{NEAR[name]}-auroc")
    frame = bfl.study(folder(name)).lines
    frame = frame[frame["runs_done"] > 0]
    panels = list(dict.fromkeys(frame["partition"]))
    with styled():
        figure = new_figure(4.2 * len(panels), 5.0)
        for axes, panel in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            for number, line in enumerate(frame[frame["partition"] == panel].to_dict("records")):
                color, marker = COLORS[number % len(COLORS)], "os^"[number // len(COLORS)]
                look = {"marker": marker, "edgecolors": color, "zorder": 3}
                (x, closed_x), (y, closed_y) = ([line[m] for m in k] for k in (ACCURACY, area))
                size, method = 30 * price[line["method"]], line["method"]
                axes.plot((x, closed_x), (y, closed_y), color=color, linewidth=0.6)
                axes.scatter(x, y, size, facecolors="white", **look)
                axes.scatter(closed_x, closed_y, size, color=color, label=method, **look)
            axes.set(title=panel, xlabel="accuracy (%)", ylabel=f"AUROC, {NEAR[name]}")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.savefig(folder(name) / FIGURE, dpi=120, metadata={"Software": None})


def draw_costs() -> None:
    """Draw the NLL, closed, against the price of each equally tuned method, by partition."""
    from bfl.experiments.results.figures.style import COLORS, new_figure, styled

    frames = []
    for name, title in EQUALLY_TUNED.items():
        price = json.loads((folder(name) / PRICE).read_text(encoding="utf-8"))
        frame = bfl.study(folder(name)).results.frame
        frames.append(
            frame.assign(price=frame["method"].map(price), panel=title + ", " + frame["partition"])
        )
    frame = pd.concat(frames).drop_duplicates(["panel", "method", "seed"])
    methods, panels = list(frame["method"].unique()), list(frame["panel"].unique())
    with styled():
        figure = new_figure(14.0, 9.0)
        grid = list(figure.subplots(3, 4).flat)
        for axes in grid[len(panels) :]:
            axes.remove()
        for axes, panel in zip(grid, panels, strict=False):
            for method, group in frame[frame["panel"] == panel].groupby("method"):
                nll, number = group["negative-log-likelihood"], methods.index(method)
                axes.errorbar(
                    group["price"].iloc[0],
                    nll.mean(),
                    nll.std(),
                    fmt="os^D"[number % 4],
                    color=COLORS[number % len(COLORS)],
                    label=method,
                )
            axes.set(title=panel, xlabel="CPU seconds, FedAvg = 1", ylabel="NLL, closed")
        handles, labels = axes.get_legend_handles_labels()  # the last panel has all methods
        figure.legend(handles, labels, loc="outside lower center", ncols=len(methods))
        figure.savefig(RESULTS / "which-rule-cost.png", dpi=110, metadata={"Software": None})


def main() -> None:
    """Measure, or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--price", choices=MEASURED, help="measures the prices that this study lacks"
    )
    parser.add_argument("pairs", nargs="?", default="", help="such as 'data-dir=\"FOLDER\"'")
    parser.add_argument("--differences", choices=MEASURED, help="prints this study's")
    given = parser.parse_args()
    if given.differences:
        print_differences(given.differences)
        return
    if given.price:
        measure(given.price, parse_pairs(given.pairs))
    for name in () if given.price else NEAR:
        if (folder(name) / PRICE).exists():
            draw(name)
    if not given.price:
        draw_costs()


if __name__ == "__main__":
    main()
