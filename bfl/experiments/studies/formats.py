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
    # Too small for the column: nothing but zeros would be shown, and of the spread as well.
    small = bool(value) and not float(_number(value, decimals))
    text, beside = (f"{n:.1e}" if small and n else _number(n, decimals) for n in (value, spread))
    return text if spread is None else f"{text} ± {beside}"


def _ours(number: Compared, column: Column) -> str:
    """Return the mean with its deviation over the seeds, and that by the test images."""
    text = _with_spread(number.ours, number.ours_spread, column.decimals)
    return f"{text} ({number.by_images:.{column.decimals}f})" if number.by_images else text


def _cells(number: Compared, column: Column, line: Line) -> list[str]:
    """Return ours, and the published number with the difference where the study has one."""
    # A run that is done need not have every number: point weights have no degree of spread.
    missing = ABSENT if line.done else line.state
    ours = missing if number.ours is None else _ours(number, column)
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
    "_by_images": lambda number: number.by_images,
    "_published": lambda number: number.published,
    "_published_spread": lambda number: number.published_spread,
    "_difference": lambda number: number.difference,
}
"""What a comparison gives to CSV, by the ending of the column's name."""


def latex(table: StudyTable) -> str:
    """Return the tables as LaTeX, for the package booktabs: one for each column of numbers.

    They are as papers print them: what is compared goes down, the groups (partitions) across; the
    best of each group is bold, and the published numbers stand below ours.
    """
    return "\n".join(_latex_table(table, number) for number in range(len(table.columns)))


def _latex_table(table: StudyTable, number: int) -> str:
    column = table.columns[number]
    groups = list(dict.fromkeys(_labels(table, line, compared=False) for line in table.lines))
    lines = {
        (_labels(table, line, compared=True), _labels(table, line, compared=False)): line
        for line in table.lines
    }
    rows = []
    for name in dict.fromkeys(key for key, _ in lines):
        ours = [_latex_number(table, lines.get((name, group)), number) for group in groups]
        rows.append(f"{' & '.join([*map(_latex_cell, name), *ours])} \\\\")
        if column.published:
            beside = [
                _latex_published(lines.get((name, group)), number, column) for group in groups
            ]
            empty = [""] * (len(name) - 1)
            rows.append(f"{' & '.join([*empty, 'published', *beside])} \\\\")
    shown = [name for name in table.label_columns if name in table.compared]
    header = [*shown, *(" · ".join(group) or column.heading for group in groups)]
    fewer = any(_seeds_if_fewer(table, line) for line in table.lines)
    notes = [
        *table.notes,
        *([f"n: that many seeds, the others {_most(table)}."] if fewer else []),
    ]
    caption = _latex_cell(f"{table.title}: {column.heading}. {' '.join(notes)}".replace("..", "."))
    body = "".join(f"{row}\n" for row in rows)
    return (
        "\\begin{table}\n\\centering\n"
        f"\\caption{{{caption}}}\n"
        f"\\begin{{tabular}}{{{'l' * len(shown)}{'r' * len(groups)}}}\n\\toprule\n"
        f"{_latex_row(header)}\n\\midrule\n{body}\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _labels(table: StudyTable, line: Line, *, compared: bool) -> tuple[str, ...]:
    """Return the labels of a line that are compared, or those of its group."""
    return tuple(text for name, text in line.labels.items() if (name in table.compared) == compared)


def _most(table: StudyTable) -> int:
    return max((line.done for line in table.lines), default=0)


def _seeds_if_fewer(table: StudyTable, line: Line) -> str:
    """Return how many runs of a line are done, if others have more; there is no column for it."""
    return f" (n = {line.done})" if 0 < line.done < _most(table) else ""


def _latex_number(table: StudyTable, line: Line | None, number: int) -> str:
    if line is None or line.numbers[number].ours is None:
        return _latex_cell(ABSENT)
    text = _latex_cell(_ours(line.numbers[number], table.columns[number]))
    return f"{text}{_seeds_if_fewer(table, line)}"


def _latex_published(line: Line | None, number: int, column: Column) -> str:
    if line is None:
        return _latex_cell(ABSENT)
    there = line.numbers[number]
    return _latex_cell(_with_spread(there.published, there.published_spread, column.decimals))


def _latex_row(cells: Iterable[str]) -> str:
    return f"{' & '.join(map(_latex_cell, cells))} \\\\"


_GREEK = {
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "δ": "delta",
    "ε": "varepsilon",
    "η": "eta",
    "λ": "lambda",
    "μ": "mu",
    "ρ": "rho",
    "σ": "sigma",
    "τ": "tau",
}

_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "→": r"$\to$",
    "↑": r"$\uparrow$",
    "√": r"$\surd$",
    "–": "--",
    **{sign: f"${sign}$" for sign in "<>"},  # in text other signs are printed for these
    "|": r"\textbar{}",
    "×": r"$\times$",
    **{sign: f"$\\{name}$" for sign, name in _GREEK.items()},
    "≈": r"$\approx$",
    "≤": r"$\le$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"$^\S$",
    "·": r"$\cdot$",
}


def _latex_cell(text: str) -> str:
    if re.fullmatch(r"[+-][\d.]+", text):
        return f"${text}$"
    text = re.sub(r"^-(?=\d)", "−", text)
    return "".join(_LATEX.get(sign, sign) for sign in text)


def by_seed(table: StudyTable) -> str:
    """Return the finished runs as CSV, one line each, in full: all metrics and the table's numbers.

    The latter are also those of a run's curves and clients; with them is where a run is from.
    """
    judged = {name for row in table.seeds for name in row.result.metrics}
    names = sorted(judged | {column.metric for column in table.columns})
    labels = list(dict.fromkeys(name for row in table.seeds for name in row.labels))
    header = [*labels, *names, "rounds", "seconds", "made_as", "commit", "processor", "scale"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in table.seeds:
        result = row.result
        where = [result.environment.get(name, "") for name in ("git-commit", "processor")]
        writer.writerow(
            [
                *(row.labels.get(name, "") for name in labels),
                *("" if (n := result.number(name)) is None else n for name in names),
                *(result.number_of_rounds, result.seconds, result.made_as, *where, table.scale),
            ]
        )
    return stream.getvalue()


def by_client(table: StudyTable) -> str:
    """Return the clients of the finished runs as CSV, one line each; nothing where none judge."""
    rows = [
        ({**row.labels, "client": client}, numbers)
        for row in table.seeds
        for client, numbers in row.result.clients.items()
    ]
    if not rows:
        return ""
    labels = list(dict.fromkeys(name for labels, _ in rows for name in labels))
    names = sorted({name for _, numbers in rows for name in numbers})
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*labels, *names, "scale"])
    for of_row, numbers in rows:
        cells = [*(of_row.get(n, "") for n in labels), *(numbers.get(n, "") for n in names)]
        writer.writerow([*cells, table.scale])
    return stream.getvalue()


FORMATS: dict[str, tuple[str, Callable[[StudyTable], str]]] = {
    "markdown": ("table.md", markdown),
    "csv": ("table.csv", comma_separated),
    "latex": ("table.tex", latex),
    "seeds": ("seeds.csv", by_seed),
    "clients": ("clients.csv", by_client),
}
"""The name of the file and what writes it, by format."""
