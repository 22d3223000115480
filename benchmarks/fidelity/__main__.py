"""Every method's posterior beside the exact one, in small regressions."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import pandas as pd

from benchmarks.fidelity import comparison
from benchmarks.fidelity.comparison import CORRELATED, LOGISTIC, ORTHOGONAL, RATIO
from bfl.experiments.results.figures.style import new_figure, png
from bfl.experiments.results.table import markdown_table
from scripts.pages import section_written

TABLE, REFERENCES, FIGURE = "table.csv", "references.csv", "fidelity.png"
SECTION = "fidelity"
"""The section of a page in which the table stands."""


def main(arguments: list[str] | None = None) -> None:
    """Compare all methods, print their table, and write it with its figure."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    options.add_argument(
        "output",
        type=Path,
        help=f"folder of {TABLE}, {REFERENCES} and {FIGURE}; OUTPUT.md gets both tables",
    )
    options.add_argument("--quick", action="store_true", help="with an eighth of the data sets")
    options.add_argument("--seed", type=int, default=0, help="of data and draws (default: 0)")
    given = options.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    rows, references = map(pd.DataFrame, comparison.compared(given.seed, quick=given.quick))
    for name, frame in ((TABLE, rows), (REFERENCES, references)):
        frame.to_csv(given.output / name, index=False, float_format="%.6g")
    (given.output / FIGURE).write_bytes(drawn(rows))
    lines = page_lines(given.output)
    print("\n".join(lines))
    page = given.output.with_suffix(".md")
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    if f"<!-- end of {SECTION} -->" in text:
        page.write_text(section_written(text, SECTION, lines), encoding="utf-8")


def page_lines(folder: Path) -> list[str]:
    """Return both tables of a folder as a page has them."""
    table, references = (pd.read_csv(folder / name) for name in (TABLE, REFERENCES))
    return [*shown(table).splitlines(), "", *markdown_table(references, 4).splitlines()]


def shown(table: pd.DataFrame) -> str:
    """Return the table as Markdown, with three figures a number."""

    def cell(value: float) -> str:
        if math.isnan(value):
            return "–"
        return (
            "< 1e-6" if 0 < value < 1e-6 else f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"
        )

    numbers = [column for column in table.columns if column != "method"]
    texts = table.assign(**{column: table[column].map(cell) for column in numbers})
    return markdown_table(texts.replace("0e+00", "0"), len(numbers))


def drawn(table: pd.DataFrame) -> bytes:
    """Return a figure of the variance ratios by method, as a PNG file."""
    figure = new_figure(9.0, 0.26 * len(table) + 1.0)
    axes = figure.subplots()
    places = range(len(table), 0, -1)
    for problem, marker in zip((ORTHOGONAL, CORRELATED, LOGISTIC), "osD", strict=True):
        axes.plot(table[f"{problem}: {RATIO}"], places, marker, label=problem, alpha=0.8)
    axes.axvline(1.0, color="0.5", linewidth=1)
    axes.set_xscale("log")
    ticks = [0.25, 0.5, 1, 2, 4, 8]
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.minorticks_off()
    axes.set_yticks(places, table["method"])
    axes.set_xlabel("pooled over exact variance: overconfident left of 1, too wide right of it")
    axes.legend(loc="lower right")
    figure.subplots_adjust(left=0.33, right=0.98, top=0.98, bottom=0.12)
    return png(figure)


if __name__ == "__main__":
    main()
