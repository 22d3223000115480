"""Terminal on which commands print their tables."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

NO_LIMIT = 10_000
"""Characters in a line that goes to no terminal."""


def console() -> Console:
    """Return where tables go: as wide as the terminal; into a pipe or a file, as they need."""
    return Console(width=None if sys.stdout.isatty() else NO_LIMIT)


def as_markdown(table: Table) -> str:
    """Return a table as Markdown, under its title."""
    head = [str(column.header) for column in table.columns]
    lines = [head, ["---"] * len(head)]
    for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
        plain = [Text.from_markup(str(cell)).plain.replace("|", "\\|") for cell in cells]
        lines.append([f"`{name}`", *plain])
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"## {table.title}\n\n{text}" if table.title else text
