"""Reads what docs/results has of the studies of Ozer et al.: for the tests of their page."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = (RESULTS / "ozer2022.md").read_text("utf-8")
ECE, NLL = "expected-calibration-error", "negative-log-likelihood"

Row = dict[str, str]


def section(heading: str) -> str:
    """Return a section of the page on one line."""
    return " ".join(PAGE.split(f"## {heading}")[1].split("\n## ")[0].split())


def spreads_derived(clients: int) -> dict[str, tuple[str, str]]:
    """Return the spreads derived for 12,000 images, as written and as coded, by rule."""
    page = (RESULTS / "ozer2022-as-coded.md").read_text("utf-8")
    block = page.split("<!-- fewer images -->")[1].split("<!-- end of fewer images -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return {
        row[1]: (row[5].split(" ")[0], row[3].split(" ")[0])
        for row in rows
        if row[0] == str(clients)
    }


@cache
def lines(study: str) -> dict[tuple[str, str], Row]:
    with (RESULTS / study / "table.csv").open(encoding="utf-8", newline="") as stream:
        return {(row["aggregation"], row["partition"]): row for row in csv.DictReader(stream)}


@cache
def pairs(study: str) -> dict[tuple[str, str, str, str], Row]:
    with (RESULTS / study / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        return {
            (r["partition"], r["metric"], r["one_aggregation"], r["other_aggregation"]): r
            for r in csv.DictReader(stream)
        }
