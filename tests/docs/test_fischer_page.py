"""What the page of Fischer's reduced tables says beside them is what the runs have."""

from __future__ import annotations

import csv
from functools import cache
from itertools import product
from pathlib import Path

from bfl.experiments.studies import read_study

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/results/fischer2024.md").read_text("utf-8")
SAID = " ".join(PAGE.split())
RULES = ("NWA", "WS", "LP")
TABLE_2 = "fischer2024-table2-fashion-mnist"


@cache
def means() -> dict[tuple[str, str], dict[str, str]]:
    path = ROOT / "docs" / "results" / TABLE_2 / "table.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        return {(row["aggregation"], row["partition"]): row for row in csv.DictReader(stream)}


def test_what_is_said_of_the_networks_of_table_2() -> None:
    for (rule, _), row in means().items():
        points = rule not in ("NWA", "LP")
        assert (float(row["mean-epistemic"]) < 1e-7) == points
    floors = SAID.split("of seeds on average: ")[1].split(". Runs that")[0]
    for rule, partition in product(("WS", "WC", "Conflation"), ("iid", "2-class")):
        assert f"{rule} {partition} 100% of the standard deviations at scale-floor" in floors


def test_the_orders_of_table_3_are_those_whose_spreads_do_not_overlap() -> None:
    with (ROOT / "configs/fischer2024/published/table3.csv").open(encoding="utf-8") as stream:
        lines = {
            (line["aggregation"], line["partition"]): line
            for line in csv.DictReader(stream)
            if line["model"] == "Flipout" and line["weighting"] == "train-size"
        }
    study = read_study(ROOT / "configs/fischer2024/table3-fashion-mnist.toml")
    found = {
        (order.metric, better.labels["aggregation"], worse.labels["aggregation"], where)
        for order in study.orders
        for better, worse in order.pairs(study.cells())
        if not order.metric.startswith("retention")
        for where in [better.labels["partition"]]
    }
    apart = set()
    for metric, column, spread, sign in (
        # The spreads of accuracies are printed as fractions.
        ("accuracy", "accuracy_pct", 100.0, 1),
        ("negative-log-likelihood", "nll", 1.0, -1),
    ):
        name = f"{column.removesuffix('_pct')}_spread"
        for where, one, other in product(("iid", "2-class"), RULES, RULES):
            ours, theirs = lines[one, where], lines[other, where]
            gap = sign * (float(ours[column]) - float(theirs[column]))
            if gap > spread * (float(ours[name]) + float(theirs[name])):
                apart.add((metric, one, other, where))
    assert found == apart
    assert "the orders of its Table 3 of which the spreads do not overlap" in SAID
