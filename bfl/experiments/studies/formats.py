"""A study's table as text: Markdown, CSV and LaTeX; its runs and their clients as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bfl.experiments.results.table import ABSENT
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.table import StudyTable

if TYPE_CHECKING:
    import pandas as pd


def shown(table: StudyTable) -> pd.DataFrame:
    """Return the table as people read it: each number with its spread, next to the published."""
    import pandas as pd

    columns: dict[str, Any] = {n: table.frame[n] for n in table.study.label_columns}
    lines = table.frame.to_dict("records")
    columns["runs"] = [f"{line['runs_done']} of {line['runs']}" for line in lines]
    for column in table.study.columns:
        metric, digits = column.metric, column.decimals
        columns[column.heading] = [_ours(line, column) for line in lines]
        if column.published:
            columns[f"{column.heading}, published"] = [
                _number(line[f"{metric}_published"], line[f"{metric}_published_spread"], digits)
                for line in lines
            ]
            columns[f"{column.heading}, difference"] = [
                ABSENT if (d := line[f"{metric}_difference"]) is None else f"{d:+.{digits}f}"
                for line in lines
            ]
    return pd.DataFrame(columns)


def _ours(line: Mapping[str, Any], column: Column) -> str:
    ours, images = line[column.metric], line[f"{column.metric}_by_images"]
    if ours is None:  # a run that is done need not have every number
        return ABSENT if line["runs_done"] else str(line["state"])
    text = _number(ours, line[f"{column.metric}_spread"], column.decimals)
    return f"{text} ({images:.{column.decimals}f})" if images else text


def _number(value: float | None, spread: float | None, decimals: int) -> str:
    if value is None:
        return ABSENT
    # Too small for the column: nothing but zeros would be shown, and of the spread as well.
    small = bool(value) and not float(f"{value:.{decimals}f}")
    text, behind = (
        "" if n is None else f"{n:.1e}" if small and n else f"{n:.{decimals}f}"
        for n in (value, spread)
    )
    return f"{text} ± {behind}" if behind else text


def markdown_table(table: pd.DataFrame, numbers: int | None = None) -> str:
    """Return a table as Markdown.

    Args:
        table: The table.
        numbers: How many columns, from the right, are set to the right; None: those of numbers.
    """
    right = [kind.kind in "if" for kind in table.dtypes]
    if numbers is not None:
        right = [at >= len(right) - numbers for at in range(len(right))]
    rows = [list(map(str, table.columns)), ["---:" if end else "---" for end in right]]
    rows += [
        [str(cell).replace("|", "\\|") for cell in row] for row in table.astype(object).to_numpy()
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def markdown(table: StudyTable) -> str:
    """Return the table as Markdown, under its title and its notes."""
    frame = shown(table)
    text = markdown_table(frame, len(frame.columns) - len(table.study.label_columns))
    return f"# {table.study.title}\n\n{' '.join(table.notes)}\n\n{text}"


def comma_separated(table: StudyTable) -> str:
    """Return the table as CSV: full precision, one column for each number, and the scale."""
    frame = table.frame.drop(columns="state").copy()  # in one piece: pandas warns of many
    return str(frame.assign(scale=table.scale).to_csv(index=False))


_SIGNS = {
    "αβγδεηλμρστ": r"\alpha \beta \gamma \delta \varepsilon \eta \lambda \mu \rho \sigma \tau",
    "±→↑√×≈≤·<>−": r"\pm \to \uparrow \surd \times \approx \le \cdot < > -",
    "†‡": r"^\dagger ^\ddagger",
}
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {
        sign: f"${command}$"
        for signs, commands in _SIGNS.items()
        for sign, command in zip(signs, commands.split(), strict=True)
    }
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"|": r"\textbar{}", "–": "--", "§": r"\S{}"}
)


def latex(table: StudyTable) -> str:
    """Return the table as LaTeX, for the package booktabs, its notes in the caption."""
    frame = shown(table).map(lambda cell: str(cell).translate(_LATEX))
    frame.columns = frame.columns.map(lambda heading: heading.translate(_LATEX))
    labels = len(table.study.label_columns)
    text = frame.style.hide(axis="index").to_latex(
        hrules=True,
        position_float="centering",
        column_format="l" * labels + "r" * (len(frame.columns) - labels),
        caption=f"{table.study.title}. {' '.join(table.notes)}".translate(_LATEX),
    )
    return str(text)


def by_seed(table: StudyTable) -> str:
    """Return the finished runs as CSV, one line each; see ``StudyTable.by_run``."""
    return str(table.by_run.to_csv(index=False))


def by_client(table: StudyTable) -> str:
    """Return the clients of the finished runs as CSV, one line each; empty where none evaluate."""
    import pandas as pd

    rows = [
        {**run.labels, "client": client, **dict(sorted(numbers.items())), "scale": table.scale}
        for run, result in table.runs
        for client, numbers in result.clients.items()
    ]
    return str(pd.DataFrame(rows, dtype=object).to_csv(index=False)) if rows else ""


FORMATS: dict[str, tuple[str, Callable[[StudyTable], str]]] = {
    "markdown": ("table.md", markdown),
    "csv": ("table.csv", comma_separated),
    "latex": ("table.tex", latex),
    "seeds": ("seeds.csv", by_seed),
    "clients": ("clients.csv", by_client),
}
"""The name of the file and its writer, by format."""
