#!/usr/bin/env python
"""The table of hostile clients on digits: a line for each defence, strategy and weighting.

python scripts/digits_hostile_clients.py            # prints the table of the page
python scripts/digits_hostile_clients.py --write    # writes it into the page
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import bfl
from bfl.aggregation.pooling import pooling_rules

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "digits-hostile-clients.md"
BEGIN, END = "<!-- accuracies -->", "<!-- end of accuracies -->"
ATTACKS = ("honest", "sign-flip", "noise", "small-variance", "echo")

Line = tuple[str, str, str]
"""Defence, strategy and weighting."""


def accuracies() -> dict[Line, dict[str, float]]:
    """Return the accuracy under each attack, by defence, strategy and weighting."""
    found: dict[Line, dict[str, float]] = {}
    for row in bfl.study(PAGE.with_suffix("")).frame.to_dict("records"):
        strategy = pooling_rules.get(row["strategy"]).name
        line = (row["defence"], strategy, row["weighting"])
        found.setdefault(line, {})[row["attack"]] = float(row["accuracy"])
    return found


def table(found: Mapping[Line, Mapping[str, float]]) -> str:
    """Return the lines of the page's table."""
    heads = ("defence", "strategy", "weighting", *ATTACKS)
    lines = [heads, ("---",) * 3 + ("---:",) * len(ATTACKS)]
    lines += [(*line, *(f"{by[attack]:.3f}" for attack in ATTACKS)) for line, by in found.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write it into the page")
    printed = table(accuracies())
    if not parser.parse_args().write:
        print(printed)
        return
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{printed}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
