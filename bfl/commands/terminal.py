"""Terminal on which commands print their tables."""

from __future__ import annotations

import sys

from rich.console import Console

NO_LIMIT = 10_000
"""Characters in a line that goes to no terminal."""


def console() -> Console:
    """Return where tables go: as wide as the terminal; into a pipe or a file, as they need."""
    return Console(width=None if sys.stdout.isatty() else NO_LIMIT)
