#!/usr/bin/env python
"""Run every combination of some keys' values, one after the other in this process; print the table.

    python scripts/compare.py --axis strategy --axis weighting=equal,distance --output FOLDER

An axis without values takes all that are registered under the key. Runs that are finished already
are not repeated, so it may be stopped and started again.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

from bfl.configuration.configuration import REGISTRIES
from bfl.configuration.sources import read_run_config
from bfl.engine.flower import FlowerApp, run_serially
from bfl.errors import BflError, ConfigurationError, unknown_name
from bfl.results.run_folder import RunFolder
from bfl.results.table import cell

CLIENTS = 10
SHOWN = {
    "accuracy": "accuracy",
    "negative-log-likelihood": "NLL",
    "expected-calibration-error": "ECE",
    "mean-epistemic": "epistemic",
    "retention-area-accuracy-epistemic": "area under retention by epistemic",
}


def read_axis(text: str) -> tuple[str, list[str]]:
    """Return a key and its values from ``KEY`` or ``KEY=VALUE,VALUE``.

    Raises:
        ConfigurationError: There is no such key, or no such value under it.
    """
    registries = {registry.kind: registry for registry in REGISTRIES}
    key, _, values = text.partition("=")
    if key not in registries:
        raise ConfigurationError(unknown_name("axis", key, registries))
    registry = registries[key]
    names = values.split(",") if values else registry.names()
    return key, [registry.get(name).name for name in names]


def main() -> None:
    """Run what is missing and print the table as Markdown."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--axis", action="append", required=True, metavar="KEY[=VALUE,...]")
    options.add_argument("--run-config", action="append", default=[], metavar="PAIRS|FILE")
    options.add_argument("--output", type=Path, required=True, help="folder that gets the runs")
    options.add_argument("--table", type=Path, help="Markdown file that gets the table")
    options.add_argument("--show", nargs="+", default=list(SHOWN), help="metrics to show")
    given = options.parse_args()
    app = FlowerApp.read(Path(__file__).resolve().parent.parent)
    overrides = read_run_config(given.run_config)
    axes = dict(read_axis(text) for text in given.axis)
    rows = []
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        folder = RunFolder(given.output / "-".join(values))
        if not folder.holds("metrics.json"):
            where = {"output-dir": str(given.output), "name": folder.path.name, "resume": True}
            run_serially(app, {**overrides, **chosen, **where, "clients": CLIENTS}, CLIENTS, {})
        metrics = folder.metrics()
        rows.append([*values, *(cell(metrics[key]) for key in given.show)])
    table = markdown([*axes, *(SHOWN.get(key, key) for key in given.show)], rows)
    if given.table:
        given.table.write_text(table, encoding="utf-8")
    print(table)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    try:
        main()
    except BflError as error:
        sys.exit(f"refused: {error}")
