"""The command ``bfl fidelity``: every method's posterior beside the exact one."""

from __future__ import annotations

import argparse
import io
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from bfl.commands.terminal import path_argument, write_output
from bfl.errors import RunError
from bfl.experiments.results.figures.style import new_figure, png
from bfl.experiments.results.table import markdown_table, section_written

if TYPE_CHECKING:
    import pandas as pd

TABLE, FIGURE = "table.csv", "fidelity.png"
SECTION = "fidelity"
"""The section of a page in which the table stands."""


def add_to(fidelity: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl fidelity``."""
    fidelity.add_argument(
        "--output",
        type=path_argument,
        default=Path("fidelity"),
        metavar="DIR",
        help=f"folder of {TABLE} and {FIGURE}; DIR.md gets the table too, where its marks are "
        "(default: fidelity)",
    )
    fidelity.add_argument("--quick", action="store_true", help="with an eighth of the data sets")
    fidelity.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="of data and draws (default: 0)"
    )
    fidelity.set_defaults(run=compare)


def _seed(given: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", given):
        raise argparse.ArgumentTypeError(f"'{given}' is no whole number from 0 to 999999999")
    return int(given)


def compare(given: argparse.Namespace) -> None:
    """Compare all methods, print their table, and write it with its figure.

    Raises:
        RunError: The folder cannot be made, or a file cannot be written.
    """
    import pandas as pd

    from bfl.fidelity.comparison import compared

    try:
        given.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {given.output}: {error.strerror or error}") from error
    rows = pd.DataFrame(compared(given.seed, quick=given.quick))
    csv = rows.to_csv(index=False, float_format="%.6g")
    # As whoever reads the file has it: a page's table follows from it.
    table = pd.read_csv(io.StringIO(csv))
    print(shown(table))
    write_output(given.output / TABLE, csv.encode())
    write_output(given.output / FIGURE, drawn(table))
    page = given.output.with_suffix(".md")
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    if f"<!-- end of {SECTION} -->" in text:
        lines = shown(table).splitlines()
        write_output(page, section_written(text, SECTION, lines).encode())


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
    from bfl.fidelity.comparison import CORRELATED, LOGISTIC, ORTHOGONAL, RATIO

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
