#!/usr/bin/env python
"""Show the standard deviations of a federation's posterior from round to round, by rule.

    python scripts/variances.py            # prints what is committed
    python scripts/variances.py --write    # writes figure and page from that
    python scripts/variances.py --make     # makes the runs first

Small federations on digits of one seed, one for each rule or remedy.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pages import section_written

from bfl.experiments.results.table import markdown_table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "variances.md"
FOLDER = PAGE.with_suffix("")
NUMBERS, FIGURE = FOLDER / "numbers.json", FOLDER / "standard-deviations.png"

KEYS: Mapping[str, Any] = {
    "dataset": "digits",
    "model": "resnet8",
    "inference": "flipout",
    "clients": 10,
    "rounds": 10,
    "closing": "none",
    "evaluate_every": 0,
    "ood_dataset": "rotated+inverted+noised",
    "seed": 0,
}
ROWS: Mapping[str, Mapping[str, Any]] = {
    "WS": {"strategy": "ws"},
    "conflation": {"strategy": "conflation"},
    "NWA: WS with σ²·K": {"strategy": "nwa"},
    "log-linear pool: conflation tempered": {"strategy": "llp"},
    "WS, fresh σ at each start": {"strategy": "ws", "start": "mean"},
    "WS, ρ learns 46 times as fast": {
        "strategy": "ws",
        "plugins": str(ROOT / "scripts" / "faster_scales.py"),
        "optimizer": "adam-with-faster-scales",
    },
    "PVI": {"strategy": "pvi"},
    "WS with the closing round": {"strategy": "ws", "closing": "bayesian-head+feature-density"},
}
COLUMNS: Mapping[str, tuple[str, str]] = {
    "σ at the end": ("sigma", ".1e"),
    "accuracy": ("accuracy", ".3f"),
    "NLL": ("negative-log-likelihood", ".3f"),
    "epistemic part": ("mean-epistemic", ".1e"),
    "retention area by epistemic": ("retention-area-accuracy-epistemic", ".4f"),
    "AUROC, rotated": ("ood-rotated-mutual-information-auroc", ".3f"),
    "inverted": ("ood-inverted-mutual-information-auroc", ".3f"),
    "noised": ("ood-noised-mutual-information-auroc", ".3f"),
}
"""The table's columns: the name of the number, and how it is shown."""

DENSITY = "WS with the closing round, feature density"


def made(name: str, row: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Make a run, and return its standard deviations by round and what its posterior is worth."""
    import bfl
    from bfl.experiments.results.run_folder import RunFolder
    from bfl.experiments.studies.results import read_run

    run = bfl.run(**{**KEYS, **row}, backend="serial", output_dir=folder, name=row["strategy"])
    path = RunFolder(run.folder)
    deviations = [
        round_["degree-of-spread"] / math.sqrt(run.posterior.size) for round_ in path.rounds()
    ]
    found, _ = read_run(path)
    numbers = {key: found[key] for key, _ in COLUMNS.values() if key in found}
    return {
        "name": name,
        "sigma-by-round": deviations,
        "numbers": {"sigma": deviations[-1], **numbers},
        "density": {
            key: found[key.replace("mutual-information", "feature-density")]
            for key in numbers
            if "closing" in row and "auroc" in key
        },
    }


def make() -> dict[str, Any]:
    """Return the numbers of all rows, with the settings and the machine."""
    from bfl.experiments.results.environment import describe_environment

    rows = []
    for name, row in ROWS.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(made(name, row, Path(folder)))
    return {"keys": dict(KEYS), "rows": rows, "environment": describe_environment()}


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the page's table."""
    shown = [(row["name"], row["numbers"]) for row in rows]
    shown += [(DENSITY, row["density"]) for row in rows if row["density"]]
    lines = [
        {"by the mutual information": name}
        | {
            title: format(numbers[key], form) if key in numbers else ""
            for title, (key, form) in COLUMNS.items()
        }
        for name, numbers in shown
    ]
    return markdown_table(pd.DataFrame(lines), len(COLUMNS)).splitlines()


def draw(rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the standard deviations by round."""
    from bfl.experiments.results.figures.style import COLORS, DASHES, new_figure, styled

    with styled():
        figure = new_figure(6.4, 4.0)
        axes = figure.subplots()
        shown = [row for row in rows if not row["density"]]
        for number, row in enumerate(shown):
            axes.plot(
                range(1, len(row["sigma-by-round"]) + 1),
                row["sigma-by-round"],
                color=COLORS[number],
                linestyle=DASHES[number % len(DASHES)],
                marker=".",
                label=row["name"],
            )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("round")
        axes.set_ylabel("root mean square of σ, pooled")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.savefig(FIGURE, dpi=120)


def page_with(text: str, numbers: Mapping[str, Any]) -> str:
    """Return the page's text with the table of these numbers."""
    return section_written(text, "numbers", table(numbers["rows"]))


def main() -> None:
    """Print the committed table, or make it anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", action="store_true", help="makes the runs; writes all")
    parser.add_argument("--write", action="store_true", help="writes figure and page")
    given = parser.parse_args()
    if given.make:
        FOLDER.mkdir(exist_ok=True)
        NUMBERS.write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8"))
    if given.make or given.write:
        draw(numbers["rows"])
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")
    print("\n".join(table(numbers["rows"])))


if __name__ == "__main__":
    main()
