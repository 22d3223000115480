"""Options that several commands have."""

from __future__ import annotations

import argparse


def add_run_config_to(options: argparse.ArgumentParser, description: str) -> None:
    """Add ``--run-config``, which may be given several times.

    Args:
        options: The command's options.
        description: What may be given.
    """
    options.add_argument(
        "--run-config", action="append", default=[], metavar="PAIRS|FILE", help=description
    )
