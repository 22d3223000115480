"""Fischer's reduced Table 3 claims what the published one has."""

import csv
from itertools import product
from pathlib import Path

from bfl.experiments.studies import read_study

ROOT = Path(__file__).resolve().parents[2]
RULES = ("NWA", "WS", "LP")


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
        for order in study.claims
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
