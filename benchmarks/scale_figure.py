"""Draw how the costs grow, from the results of ``pooling`` and ``federation_scale``.

    python benchmarks/scale_figure.py FOLDER_OF_JSON FILE.png

Left: seconds of a round against the number of clients. Right: nanoseconds of pooling for each
client and parameter, over the product of both. Level lines on the right, and lines of slope 1 on
the left once training dominates, are linear growth.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from bfl.experiments.results.figures.style import COLORS, new_figure, styled

ROUND = re.compile(r"(?P<data>.+), (?P<clients>\d+) clients: a round$")
POOL = re.compile(r".*, (?P<clients>\d+) clients × (?P<size>\S+) parameters, each of them$")


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a benchmark's result."""
    found: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text())["rows"]
    return found


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


def main() -> None:
    """Draw the figure."""
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    with styled():
        figure = new_figure(8.0, 3.2)
        left, right = figure.subplots(1, 2)
        draw_rounds(left, rows(folder, "federation_scale"))
        draw_pooling(right, rows(folder, "pooling"))
        figure.savefig(output, dpi=150)


if __name__ == "__main__":
    main()
