"""A study's table as text: Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable

from bfl.experiments.results.table import ABSENT
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.table import Compared, Line, StudyTable


def _number(value: float | None, decimals: int, *, sign: bool = False) -> str:
    if value is None:
        return ABSENT
    return f"{value:{'+' if sign else ''}.{decimals}f}"


def _with_spread(value: float | None, spread: float | None, decimals: int) -> str:
    text = _number(value, decimals)
    if value and not float(text):  # too small for the column: nothing but zeros would be shown
        text = f"{value:.1e}"
    return text if spread is None else f"{text} ± {_number(spread, decimals)}"


def _cells(number: Compared, column: Column, line: Line) -> list[str]:
    """Return ours, and the published number with the difference where the study has one."""
    # A run that is done need not have every number: point weights have no degree of spread.
    missing = ABSENT if line.done else line.state
    ours = (
        missing
        if number.ours is None
        else _with_spread(number.ours, number.ours_spread, column.decimals)
    )
    if not column.published:
        return [ours]
    published = _with_spread(number.published, number.published_spread, column.decimals)
    return [ours, published, _number(number.difference, column.decimals, sign=True)]


def _header(table: StudyTable) -> list[str]:
    header = [*table.label_columns, "runs"]
    for column in table.columns:
        header += [column.heading, *(["published", "difference"] if column.published else [])]
    return header


def _rows(table: StudyTable) -> Iterable[list[str]]:
    for line in table.lines:
        cells = [*line.labels.values(), f"{line.done} of {line.runs}"]
        for number, column in zip(line.numbers, table.columns, strict=True):
            cells += _cells(number, column, line)
        yield cells


def markdown(table: StudyTable) -> str:
    """Return the table as Markdown, under its title and its notes."""
    lines = [_header(table), _alignment(table), *_rows(table)]
    text = "".join(f"| {' | '.join(map(_markdown_cell, line))} |\n" for line in lines)
    return f"# {table.title}\n\n{' '.join(table.notes)}\n\n{text}"


def _markdown_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _alignment(table: StudyTable) -> list[str]:
    numbers = len(_header(table)) - len(table.label_columns)
    return ["---"] * len(table.label_columns) + ["---:"] * numbers


def comma_separated(table: StudyTable) -> str:
    """Return the table as CSV: full precision, one column for each number, and the scale."""
    header = [*table.label_columns, "runs_done", "runs"]
    for column in table.columns:
        header += [f"{column.metric}{what}" for what in _PARTS]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*header, "scale"])
    for line in table.lines:
        cells: list[object] = [*line.labels.values(), line.done, line.runs]
        for number in line.numbers:
            cells += ["" if part(number) is None else part(number) for part in _PARTS.values()]
        writer.writerow([*cells, table.scale])
    return stream.getvalue()


_PARTS: dict[str, Callable[[Compared], float | None]] = {
    "": lambda number: number.ours,
    "_spread": lambda number: number.ours_spread,
    "_published": lambda number: number.published,
    "_published_spread": lambda number: number.published_spread,
    "_difference": lambda number: number.difference,
}
"""What a comparison gives to CSV, by the ending of the column's name."""


def latex(table: StudyTable) -> str:
    """Return the table as LaTeX, for the package booktabs."""
    numbers = len(_header(table)) - len(table.label_columns)
    columns = "l" * len(table.label_columns) + "r" * numbers
    rows = "".join(f"{_latex_row(row)}\n" for row in _rows(table))
    caption = _latex_cell(f"{table.title}. {' '.join(table.notes)}".replace("..", "."))
    return (
        "\\begin{table}\n\\centering\n"
        f"\\caption{{{caption}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n"
        f"{_latex_row(_header(table))}\n\\midrule\n{rows}\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _latex_row(cells: Iterable[str]) -> str:
    return f"{' & '.join(map(_latex_cell, cells))} \\\\"


_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "→": r"$\to$",
    "√": r"$\surd$",
    "–": "--",
    "α": r"$\alpha$",
}


def _latex_cell(text: str) -> str:
    if re.fullmatch(r"[+-][\d.]+", text):
        return f"${text}$"
    return "".join(_LATEX.get(sign, sign) for sign in text)


FORMATS: dict[str, tuple[str, Callable[[StudyTable], str]]] = {
    "markdown": ("table.md", markdown),
    "csv": ("table.csv", comma_separated),
    "latex": ("table.tex", latex),
}
"""The name of the file and what writes it, by format."""
