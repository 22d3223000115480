"""What the page of Fischer's reduced tables says beside them is what the runs have."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/results/fischer2024.md").read_text("utf-8")
SAID = " ".join(PAGE.split())
TABLE_2 = "fischer2024-table2-fashion-mnist"
# How an order stands, by the words of a verdict.
WORDS = {
    "found, by interval and exact test": "found by both",
    "found, by the exact test alone": "found by the test",
    "found, by the interval": "found by the interval",
    "the reverse is found": "reversed",
    "no significant order": "open",
    "no order": "untested",
}


@cache
def expected(study: str) -> dict[tuple[str, str], str]:
    """Return how each expected order of a study stands, by column and order."""
    block = PAGE.split(f"<!-- verdicts {study} -->")[1].split("<!-- end of verdicts -->")[0]
    found: dict[tuple[str, str], str] = {}
    column = ""
    for line in block.splitlines():
        if begin := re.match(r"- Expected of (.*?):(.*)", line):
            column, line = begin[1], begin[2]
        elif not line.startswith("  - "):
            column = ""
        if column and line:
            order, how = line.removeprefix("  - ").strip().split(": ", 1)
            found[column, order] = next(WORDS[words] for words in WORDS if how.startswith(words))
    return found


@cache
def means() -> dict[tuple[str, str], dict[str, str]]:
    path = ROOT / "docs" / "results" / TABLE_2 / "table.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        return {(row["aggregation"], row["partition"]): row for row in csv.DictReader(stream)}
