"""Options that several commands have."""

from __future__ import annotations

import argparse
from pathlib import Path

from bfl.errors import ConfigurationError
from bfl.files import given_path


def path_argument(given: str) -> Path:
    """Return the path that an argument is: the type of every argument that is one."""
    try:
        return given_path(given, "path")
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_run_config_to(options: argparse.ArgumentParser, description: str) -> None:
    """Add ``--run-config``, which may be given several times.

    Args:
        options: The command's options.
        description: What may be given.
    """
    options.add_argument(
        "--run-config", action="append", default=[], metavar="PAIRS|FILE", help=description
    )
