"""Tables of pages that hold measurements: the committed results, line by line."""

import json
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs" / "results" / "benchmarks"


def table(page: str, heading: str) -> list[str]:
    """Return the lines of the first table below a heading of a page, without its head."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    beginning = dropwhile(lambda line: not line.startswith("| "), text.splitlines())
    return list(takewhile(lambda line: line.startswith("| "), beginning))[2:]


def line(*columns: str) -> str:
    return f"| {' | '.join(columns)} |"


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value:.2f} s"


def of_secure_sum(cell: dict[str, Any]) -> str:
    ours, other = cell["masked"], cell["quantized"]
    others = cell.get("quantized-seconds")
    return line(
        f"{cell['parameters'] / 1e6:g} M",
        str(cell["clients"]),
        *(f"{ours[what]:.0e}" for what in ("mean", "variance")),
        *(f"{other[what]:,.0f}" if other else "" for what in ("mean", "variance")),
        *(seconds(cell["seconds"][stage]) for stage in ("keys-and-shares", "clients", "server")),
        *(seconds(others[stage]) if others else "" for stage in ("clients", "server")),
    )


def test_secure_aggregation() -> None:
    cells = json.loads((RESULTS / "secure_aggregation.json").read_text(encoding="utf-8"))["cells"]
    assert table("secure-aggregation.md", "Measured") == [of_secure_sum(cell) for cell in cells]
    for cell in cells:
        assert cell["masked"]["mean"] < 0.01
        assert cell["masked"]["variance"] < 1e-3


def test_large_posteriors() -> None:
    report = json.loads((RESULTS / "large_posteriors.json").read_text(encoding="utf-8"))
    sizes: dict[str, list[str]] = {}
    for row in report["rows"]:
        value = row["ours"]["median"]
        size = row["what"].partition(":")[0]
        shown = f"{value:.0f} s" if row["unit"] == "s" else f"{value:,.0f} MB"
        sizes.setdefault(size, []).append(shown)
    lines = [line(size, *values) for size, values in sizes.items()]
    assert table("deployment.md", "Large models") == lines


def test_rounds_of_a_deployment() -> None:
    report = json.loads((RESULTS / "deployed_round.json").read_text(encoding="utf-8"))
    lines = [
        line(row["what"].partition(" ")[0], f"{row['ours']['median']:.1f} s")
        for row in report["rows"]
    ]
    assert table("deployment.md", "Clients stay warm") == lines
    assert all(row["met"] is not False for row in report["rows"])
