"""A study's table as text: Markdown, CSV and LaTeX, and its runs as CSV."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bfl.experiments.studies.table import StudyTable, shown

if TYPE_CHECKING:
    import pandas as pd

BAR = "\\|"
"""A bar within a cell of a Markdown table."""


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
        [str(cell).replace("|", BAR) for cell in row] for row in table.astype(object).to_numpy()
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def markdown(table: StudyTable) -> str:
    """Return the table as Markdown, under its title and its notes."""
    frame = shown(table)
    text = markdown_table(frame, len(frame.columns) - len(table.study.label_columns))
    return f"# {table.study.title}\n\n{' '.join(table.notes)}\n\n{text}"


def comma_separated(table: StudyTable) -> str:
    """Return the table as CSV: full precision, one column for each number, and the scale."""
    frame = table.frame.drop(columns="state").copy().assign(scale=table.scale)
    return str(frame.to_csv(index=False))


def latex(table: StudyTable) -> str:
    """Return the table as LaTeX, for the package booktabs, its notes in the caption."""
    frame = shown(table)
    rows = [list(frame.columns), *frame.to_numpy().tolist()]
    head, *body = (f"{' & '.join(map(_escaped, row))} \\\\\n" for row in rows)
    labels = len(table.study.label_columns)
    caption = _escaped(f"{table.study.title}. {' '.join(table.notes)}")
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n"
        f"\\begin{{tabular}}{{{'l' * labels}{'r' * (len(frame.columns) - labels)}}}\n\\toprule\n"
        f"{head}\\midrule\n{''.join(body)}\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )


_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "–": "--",
    "−": "$-$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "δ": r"$\delta$",
    "ε": r"$\varepsilon$",
    "η": r"$\eta$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "±": r"$\pm$",
    "→": r"$\to$",
    "↑": r"$\uparrow$",
    "√": r"$\surd$",
    "×": r"$\times$",
    "≈": r"$\approx$",
    "≤": r"$\le$",
    "·": r"$\cdot$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"\S{}",
    **{sign: f"${sign}$" for sign in "<>"},
}


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in str(text))


def by_seed(table: StudyTable) -> str:
    """Return the finished runs as CSV, one line each: all metrics and the table's numbers.

    The latter are also those of a run's curves and clients; with them is where a run is from.
    """
    import pandas as pd

    names = {name for _, result in table.runs for name in result.metrics}
    names |= {column.metric for column in table.study.columns}
    rows = [
        {
            **run.labels,
            **{name: result.number(name) for name in sorted(names)},
            "rounds": result.number_of_rounds,
            "seconds": result.seconds,
            "made_as": result.made_as,
            "commit": result.environment.get("git-commit", ""),
            "processor": result.environment.get("processor", ""),
            "scale": table.scale,
        }
        for run, result in table.runs
    ]
    return str(pd.DataFrame(rows, dtype=object).to_csv(index=False))


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
"""The name of the file and what writes it, by format."""
