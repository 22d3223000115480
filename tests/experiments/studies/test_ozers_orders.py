"""The orders that Ozer et al. claim in words: which of them their own tables have."""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path

import pytest

from bfl.experiments.studies import read_study
from bfl.experiments.studies.study import Cell

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
# The published column of a metric, and on which side is the better number.
COLUMNS = {
    "accuracy": ("accuracy_pct", 1),
    "expected-calibration-error": ("ece_pct", -1),
    "negative-log-likelihood": ("nll", -1),
}
LOW_SPREAD, HIGH_SPREAD = ("GAA", "AALV", "CF"), ("EAA", "PPA")


def published(table: str) -> dict[tuple[str, ...], dict[str, str]]:
    with (CONFIGS / f"ozer2022/published/{table}.csv").open(encoding="utf-8") as stream:
        return {key(line): line for line in csv.DictReader(stream)}


def key(labels: dict[str, str]) -> tuple[str, ...]:
    return tuple(labels[name] for name in ("model", "aggregation", "partition", "dataset"))


def agreeing(study: str, table: str) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Return in how many published pairs of all each order holds, by metric and rules."""
    lines, read = published(table), read_study(CONFIGS / study / f"{table}.toml")
    found: dict[tuple[str, str, str], tuple[int, int]] = {}

    def number(cell: Cell, column: str) -> float:
        return float(lines[key(dict(cell.labels))][column])

    for order in read.orders:
        column, sign = COLUMNS[order.metric]
        pairs = [[number(cell, column) for cell in pair] for pair in order.pairs(read.cells())]
        holds = sum(sign * (better - worse) > 0 for better, worse in pairs)
        rules = order.better["aggregation"], order.worse["aggregation"]
        before = found.get((order.metric, *rules), (0, 0))
        found[order.metric, *rules] = before[0] + holds, before[1] + len(pairs)
    return found


@pytest.mark.parametrize("study", ["ozer2022", "ozer2022-as-coded"])
def test_with_ten_clients_rules_of_little_spread_are_ahead_of_networks_of_points(
    study: str,
) -> None:
    found = agreeing(study, "table1")
    assert found.keys() == {(metric, rule, "N/A") for metric in COLUMNS for rule in LOW_SPREAD}
    assert set(found.values()) == {(12, 12)}, "FVBA against FED, and FVBWA against FEDAVG"


@pytest.mark.parametrize("study", ["ozer2022", "ozer2022-as-coded"])
def test_with_100_clients_rules_of_much_spread_fall_behind(study: str) -> None:
    """And with IID data the others are ahead of networks of points."""
    found = agreeing(study, "table3")
    rules = product(("accuracy", "negative-log-likelihood"), LOW_SPREAD, HIGH_SPREAD)
    points = product(COLUMNS, LOW_SPREAD, ("N/A",))
    if study == "ozer2022":  # tested beside the paper, whose AALV is the code's
        assert found.pop(("accuracy", "GAA", "AALV")) == (8, 12)
    assert found == {**dict.fromkeys(rules, (12, 12)), **dict.fromkeys(points, (3, 3))}
