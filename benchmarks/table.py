"""Put the results of all benchmarks into one Markdown file, and draw how the costs grow.

    python benchmarks/table.py FOLDER_OF_JSON FILE.md

The figure, of ``pooling`` and ``federation_scale``, is scale.png in the folder. Left: seconds of a
round against the number of clients. Right: nanoseconds of pooling for each client and parameter,
over the product of both. Level lines on the right, and lines of slope 1 on the left once training
dominates, are linear growth.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measuring import markdown

from bfl.experiments.results.figures.style import COLORS, new_figure, styled

SHOWN = ("processor", "processors", "memory-bytes", "platform", "python")
PACKAGES = ("flwr", "ray", "tensorflow", "tensorflow-probability", "numpy")

ROUND = re.compile(r"(?P<data>.+), (?P<clients>\d+) clients: a round$")
POOL = re.compile(r".*, (?P<clients>\d+) clients × (?P<size>\S+) parameters, each of them$")


def main() -> None:
    """Write the file, and the figure where there are its numbers."""
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    files = sorted(folder.glob("*.json"))
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    if not reports:
        sys.exit(f"{folder} holds no results")
    made_on = {_described(report["environment"]) for report in reports}
    lines = [
        "# Benchmarks",
        "",
        "`scripts/benchmark.sh` runs them all and writes this file from the JSON files beside it.",
        "Both sides of a comparison are measured in the same run, in turn where they share a",
        "process; a cell is the median with the range of the runs, and the ratio is how many times",
        "better ours is. What is quoted was measured on another machine of two cores, so its ratio",
        "is rough.",
        "",
        *(f"- Machine and versions: {machine}." for machine in sorted(made_on)),
        "",
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    sections = [_section(report, told=len(made_on) == 1) for report in reports]
    output.write_text("\n".join([*lines, "\n".join(sections)]), encoding="utf-8")
    print(output.read_text(encoding="utf-8"))
    rows = {report["name"]: report["rows"] for report in reports}
    if {"federation_scale", "pooling"} <= rows.keys():
        with styled():
            figure = new_figure(8.0, 3.2)
            left, right = figure.subplots(1, 2)
            draw_rounds(left, rows["federation_scale"])
            draw_pooling(right, rows["pooling"])
            figure.savefig(folder / "scale.png", dpi=150)


def _described(environment: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {environment[key]}" for key in (*SHOWN, *PACKAGES))


def _section(report: Mapping[str, Any], *, told: bool) -> str:
    """Return a benchmark's section, with where it was made unless that has been told for all."""
    environment = report["environment"]
    commit = environment["git-commit"]
    made = [] if told else [_described(environment)]
    changed = ", with changes that were not committed" if environment["git-changed"] else ""
    made += [f"commit {commit[:8]}{changed}"] if commit else []
    return markdown(report) + (f"- Made on: {'; '.join(made)}.\n" if made else "")


def draw_rounds(axes: Any, found: list[dict[str, Any]]) -> None:
    """Draw a round's seconds, one line for each way of sharing out the data."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in found:
        match = ROUND.match(row["what"])
        if match:
            point = (int(match["clients"]), row["ours"]["median"])
            lines.setdefault(match["data"], []).append(point)
    for color, (data, points) in zip(COLORS, lines.items(), strict=False):
        axes.plot(*zip(*sorted(points), strict=True), "o-", color=color, label=data)
    axes.set(xscale="log", yscale="log", xlabel="clients", ylabel="seconds a round")
    axes.set_title("A round on Ray, two actors")
    axes.legend()


def draw_pooling(axes: Any, found: list[dict[str, Any]]) -> None:
    """Draw nanoseconds for each client and parameter, one line for each number of clients."""
    points = []
    for row in found:
        match = POOL.match(row["what"])
        if match:
            clients, size = int(match["clients"]), float(match["size"])
            points.append((clients, clients * size, row["ours"]["median"]))
    for color, clients in zip(COLORS, sorted({p[0] for p in points}), strict=False):
        line = sorted((total, cost) for count, total, cost in points if count == clients)
        axes.plot(*zip(*line, strict=True), "o-", color=color, label=f"{clients} clients")
    axes.set(xscale="log", xlabel="clients × parameters", ylabel="ns for each of them")
    axes.set_ylim(bottom=0)
    axes.set_title("Pooling (linear pool)")
    axes.legend()


if __name__ == "__main__":
    main()
