#!/usr/bin/env python
"""Run every strategy with every weighting, one after the other in this process; print the table.

    python scripts/every_strategy.py [--run-config PAIRS|FILE ...] [--output FOLDER] [--table FILE]

Runs that are finished already are not repeated, so it may be stopped and started again.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from bfl.configuration.sources import read_run_config
from bfl.engine.flower import FlowerApp, run_serially
from bfl.pooling import pooling_rules
from bfl.results.run_folder import RunFolder
from bfl.results.table import cell
from bfl.weightings import weightings

CLIENTS = 10
SHOWN = {
    "accuracy": "accuracy",
    "negative-log-likelihood": "NLL",
    "expected-calibration-error": "ECE",
    "mean-epistemic": "epistemic",
    "retention-area-accuracy-epistemic": "area under retention by epistemic",
}


def main() -> None:
    """Run what is missing and print the table as Markdown."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--run-config", action="append", default=[])
    options.add_argument("--output", type=Path, default=Path("runs/every-strategy"))
    options.add_argument("--table", type=Path, help="Markdown file that gets the table")
    given = options.parse_args()
    app = FlowerApp.read(Path(__file__).resolve().parent.parent)
    overrides = read_run_config(given.run_config)
    rows = []
    for strategy, weighting in product(pooling_rules.names(), weightings.names()):
        folder = RunFolder(given.output / f"{strategy}-{weighting}")
        if not folder.holds("metrics.json"):
            chosen = {
                "strategy": strategy,
                "weighting": weighting,
                "clients": CLIENTS,
                "output-dir": str(given.output),
                "name": folder.path.name,
            }
            run_serially(app, {**overrides, **chosen}, CLIENTS, {})
        metrics = folder.metrics()
        rows.append([strategy, weighting, *(cell(metrics[key]) for key in SHOWN)])
    table = markdown(["strategy", "weighting", *SHOWN.values()], rows)
    if given.table:
        given.table.write_text(table, encoding="utf-8")
    print(table)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
