"""Flower's SuperNode, whose loop looks for work more often; it takes the same arguments."""

from __future__ import annotations

import importlib
from typing import Any

from bfl.engine.flower.pauses import Pauses, quick_pulls


def main() -> None:
    """Run the SuperNode."""
    quick_pulls()
    loop: Any = importlib.import_module("flwr.supernode.start_client_internal")
    loop.time = Pauses()
    command: Any = importlib.import_module("flwr.supernode.cli.flower_supernode")
    command.flower_supernode()


if __name__ == "__main__":
    main()
