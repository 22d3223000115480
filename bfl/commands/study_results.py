"""The command ``bfl verdicts``: what pages of results say of orders, written from the results."""

from __future__ import annotations

import argparse
from pathlib import Path

from bfl.experiments.studies.verdicts import write_verdicts


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to those of ``bfl``."""
    pages = commands.add_parser(
        "verdicts", help="write anew what pages of results say of orders, from the results"
    )
    pages.add_argument("pages", type=Path, nargs="+", metavar="PAGE", help="a Markdown file")
    pages.set_defaults(run=write_pages)


def write_pages(given: argparse.Namespace) -> None:
    """Write the verdicts of pages anew."""
    for page in given.pages:
        write_verdicts(page)
        print(page)
