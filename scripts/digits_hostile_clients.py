#!/usr/bin/env python
"""The table of hostile clients on digits: a line for each defence, strategy and weighting.

python scripts/digits_hostile_clients.py            # prints the table of the page
python scripts/digits_hostile_clients.py --write    # writes it into the page
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from pages import section_written

import bfl
from bfl.aggregation.pooling import pooling_rules
from bfl.experiments.results.table import markdown_table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "digits-hostile-clients.md"
ATTACKS = ["honest", "sign-flip", "noise", "small-variance", "echo"]


def table() -> list[str]:
    """Return the lines of the page's table: the accuracy under each attack."""
    frame = bfl.study(PAGE.with_suffix("")).lines
    frame["strategy"] = [pooling_rules.get(name).name for name in frame["strategy"]]
    line = ["defence", "strategy", "weighting"]
    by_attack = frame.pivot(index=line, columns="attack", values="accuracy")
    lines = pd.MultiIndex.from_frame(frame[line].drop_duplicates())
    shown = by_attack.loc[lines, ATTACKS].map("{:.3f}".format).reset_index()
    return markdown_table(shown, len(ATTACKS)).splitlines()


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write it into the page")
    given = parser.parse_args()
    lines = table()
    print("\n".join(lines))
    if given.write:
        PAGE.write_text(section_written(PAGE.read_text("utf-8"), "accuracies", lines), "utf-8")


if __name__ == "__main__":
    main()
