"""Flower's SuperLink with a patient database; it takes the same arguments."""

from __future__ import annotations

import importlib
import sys
from typing import Any

BUSY_TIMEOUT = 120
"""Seconds that a call waits while another one writes to the database; Flower: 5, which writing a
posterior of hundreds of megabytes takes."""


def superlink_command() -> list[str]:
    """Return the command of a SuperLink that waits for its database; flower-superlink's options."""
    return [sys.executable, "-P", __file__]


def main() -> None:
    """Run the SuperLink."""
    connections: Any = importlib.import_module("flwr.supercore.sql_mixin")
    pragmas = {**dict(connections.SQLITE_PRAGMAS), "busy_timeout": str(BUSY_TIMEOUT * 1000)}
    connections.SQLITE_PRAGMAS = tuple(pragmas.items())
    command: Any = importlib.import_module("flwr.superlink.cli")
    command.flower_superlink()


if __name__ == "__main__":
    main()
