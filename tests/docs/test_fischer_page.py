"""What the page of Fischer's reduced tables says beside them is what the runs have."""

from __future__ import annotations

import csv
import re
from functools import cache
from itertools import combinations, product
from pathlib import Path

from bfl.experiments.studies import read_study

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/results/fischer2024.md").read_text("utf-8")
SAID = " ".join(PAGE.split())
RULES = ("NWA", "WS", "LP")
ALL = ("WS", "WC", "NWA", "LP")
GAIN = "retention-gain-accuracy-epistemic"
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
def of_pairs(metric: str) -> dict[tuple[str, str, str], str]:
    """Return what is known of the order of two lines, by partition and rules."""
    path = ROOT / "docs" / "results" / TABLE_2 / "pairs.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["metric"] == metric]
    return {
        (r["partition"], r["one_aggregation"], r["other_aggregation"]): r["order"] for r in rows
    }


@cache
def means() -> dict[tuple[str, str], dict[str, str]]:
    path = ROOT / "docs" / "results" / TABLE_2 / "table.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        return {(row["aggregation"], row["partition"]): row for row in csv.DictReader(stream)}


def test_which_orders_of_table_2_are_found() -> None:
    orders = expected(TABLE_2)
    by = {how: {key for key, found in orders.items() if found == how} for how in orders.values()}
    assert {how: len(keys) for how, keys in by.items()} == {
        "found by both": 24,
        "found by the interval": 4,
    }
    assert by["found by the interval"] == {
        ("accuracy (%)", f"2-class {one} better than {other}")
        for one, other in product(("WS", "WC"), ("NWA", "LP"))
    }
    assert "All 28 of these orders are found: 24 by interval and exact test, and four by" in SAID
    assert "(accuracy under the 2-class partition, WS and WC against NWA and LP)" in SAID


def test_what_is_said_of_the_gains_of_table_2() -> None:
    pairs = of_pairs(GAIN)
    assert {pairs["iid", *rules] for rules in combinations(ALL, 2)} == {"not significant"}
    assert "with IID data no order of gains is significant" in SAID
    assert {pairs["2-class", *each] for each in product(("WS", "WC"), ("NWA", "LP"))} == {"test"}
    table = means()
    for one, other in product(("WS", "WC"), ("NWA", "LP")):
        gains = [float(table[rule, "2-class"][GAIN]) for rule in (one, other)]
        assert gains[0] > gains[1]
    said = (
        "under the 2-class partition WS and WC gain more than NWA and LP by interval and exact test"
    )
    assert said in SAID
    against = PAGE.split("- 2-class, gain by the epistemic part (points), against an order at")[1]
    lines = against.splitlines()[0].removeprefix(" random: ")
    told = {rule: lines.split(f"{rule} ", 1)[1].split("), ")[0].split(");")[0] for rule in RULES}
    for rule in ("NWA", "LP"):
        assert "not significant over the seeds" in told[rule]
    assert "beyond; by interval and exact test: +" in told["WS"]
    assert "and neither of the latter beyond chance over the seeds" in SAID


def test_what_is_said_of_the_networks_of_table_2() -> None:
    for (rule, _), row in means().items():
        points = rule not in ("NWA", "LP")
        assert (float(row["mean-epistemic"]) < 1e-7) == points
    floors = SAID.split("of seeds on average: ")[1].split(". Runs that")[0]
    for rule, partition in product(("WS", "WC", "Conflation"), ("iid", "2-class")):
        assert f"{rule} {partition} 100% of the standard deviations at scale-floor" in floors
    assert "is less than 0.0000001 on average" in SAID


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
