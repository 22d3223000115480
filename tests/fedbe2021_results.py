"""What the studies of FedBE on CIFAR-10 have found, as their pages' tests read it."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = RESULTS / "fedbe2021.md"
ECE, NLL = "expected-calibration-error", "negative-log-likelihood"
FEDBE, PLAIN, DISTILLED, AVERAGED = "FedBE", "FedBE without SWA", "v-Distillation", "FedAvg"
LABELS = "clients", "method", "epochs", "rates", "targets"

Row = dict[str, str]


class Difference(NamedTuple):
    """One line minus another, its 95 % interval, and what is known of the order."""

    mean: float
    low: float
    high: float
    order: str


def said_under(heading: str) -> str:
    """Return what the page says under a heading, on one line."""
    text = PAGE.read_text("utf-8").split(f"{heading}\n")[1]
    ends = [f"\n{'#' * level} " for level in range(2, heading.index(" ") + 1)]
    return " ".join(min((text.split(end)[0] for end in ends), key=len).split())


@cache
def rows(study: str, name: str) -> tuple[Row, ...]:
    with (RESULTS / study / name).open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream))


def of_line(row: Row, labels: tuple[str, ...]) -> bool:
    """Return whether a row is a line's: its labels come first."""
    return tuple(row.values())[: len(labels)] == labels


def line(study: str, *labels: str) -> Row:
    (found,) = [row for row in rows(study, "table.csv") if of_line(row, labels)]
    return found


def seeds(study: str, metric: str, *labels: str) -> list[float]:
    """Return a number of a line's runs, by seed."""
    found = [row for row in rows(study, "seeds.csv") if of_line(row, labels)]
    return [float(row[metric]) for row in sorted(found, key=lambda row: int(row["seed"]))]


def difference(study: str, metric: str, one: str, other: str, runs: int = 3) -> Difference:
    """Return one line minus another; a line's labels are joined by commas."""
    for row in rows(study, "pairs.csv"):
        sides = [
            # A label that both lines share has a single column.
            ",".join(filter(None, (row.get(f"{side}_{name}", row.get(name)) for name in LABELS)))
            for side in ("one", "other")
        ]
        if row["metric"] == metric and set(sides) == {one, other}:
            assert row["pairs"] == str(runs)
            sign = 1.0 if sides == [one, other] else -1.0
            low, high = sorted(sign * float(row[end]) for end in ("low_95", "high_95"))
            return Difference(sign * float(row["one_minus_other"]), low, high, row["order"])
    raise AssertionError((study, metric, one, other))


@cache
def published(partition: str = "step") -> dict[str, float]:
    """Return the accuracies of ConvNet under a partition in Table 1, by method."""
    table = rows_of_paper("table1", partition=partition, network="ConvNet")
    return {row["method"]: float(row["accuracy_pct"]) for row in table}


def rows_of_paper(table: str, **labels: str) -> list[Row]:
    """Return the rows of a table of the paper's that have the labels."""
    path = ROOT / "configs" / "fedbe2021" / "published" / f"{table}.csv"
    with path.open(encoding="utf-8") as stream:
        return [row for row in csv.DictReader(stream) if labels.items() <= row.items()]


def of_paper(table: str, **labels: str) -> float:
    """Return the one accuracy of a table of the paper's that has the labels, in percent."""
    (found,) = rows_of_paper(table, **labels)
    return float(found["accuracy_pct"])
