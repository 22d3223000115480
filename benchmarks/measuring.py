"""Measurement and report of every benchmark.

Times on a machine that others use as well drift by tens of percent, so the two sides of a
comparison take turns (A, B, A, B, …), medians are quoted with their range, and only ratios count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bfl.experiments.results.environment import describe_environment


@dataclass(frozen=True)
class Timing:
    """Several measurements of one thing."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Timing:
        """Return the summary of some measurements."""
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Row:
    """One line of the table: a thing, what it took or reached, and against what.

    Attributes:
        what: What is measured.
        unit: The unit of both sides.
        ours: This project's side.
        reference_name: What the other side is; empty without one.
        reference: The other side: measured in the same run, or a quoted number.
        ratio: How many times better ours is (faster, smaller), from the two medians.
        goal: The ratio to reach; None where the row only informs.
    """

    what: str
    unit: str
    ours: Timing
    reference_name: str = ""
    reference: Timing | None = None
    ratio: float | None = None
    goal: float | None = None

    @property
    def met(self) -> bool | None:
        """True if the goal is reached; None without one."""
        return None if self.goal is None or self.ratio is None else self.ratio >= self.goal


@dataclass(frozen=True)
class Report:
    """Report of one benchmark."""

    name: str
    title: str
    rows: Sequence[Row]
    notes: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Return the report with the machine's description, for a file."""
        rows = [{**asdict(row), "met": row.met} for row in self.rows]
        return {
            "name": self.name,
            "title": self.title,
            "environment": describe_environment(),
            "rows": rows,
            "notes": list(self.notes),
        }


def seconds(work: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def alternate(
    sides: Mapping[str, Callable[[], Any]], runs: int = 5, warm_up: int = 1
) -> dict[str, Timing]:
    """Return the seconds that each side's call takes, the sides taking turns.

    Args:
        sides: A call for each name.
        runs: Counted calls of each side.
        warm_up: Calls of each side before, which are not counted.
    """
    for _ in range(warm_up):
        for work in sides.values():
            work()
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, work in sides.items():
            taken[name].append(seconds(work))
    return {name: Timing.of(values) for name, values in taken.items()}


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--output", type=Path, help="JSON file that gets the result")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each side (5)")
    return parser


def publish(report: Report, output: Path | None) -> None:
    """Print a report's table, and write it as JSON if a file is given."""
    print(markdown(report.to_json()))
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")


def markdown(report: Mapping[str, Any]) -> str:
    """Return a report, as ``Report.to_json`` gives it, as a Markdown section."""
    lines = [
        f"## {report['title']}",
        "",
        "| what | ours | against | ratio | goal |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in report["rows"]:
        other = row["reference"]
        cells = (
            row["what"],
            _timing(row["ours"], row["unit"]),
            f"{row['reference_name']}: {_timing(other, row['unit'])}" if other else "",
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            "" if row["goal"] is None else f"{row['goal']:g}{' ✓' if row['met'] else ' missed'}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {note}" for note in report["notes"]]
    return "\n".join([*lines, "", *notes]) + "\n"


def _timing(timing: Mapping[str, Any], unit: str) -> str:
    median, low, high = (_number(timing[key]) for key in ("median", "low", "high"))
    return f"{median} {unit}" if timing["runs"] <= 1 else f"{median} {unit} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
