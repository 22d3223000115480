"""Output of a study's results: gathered, as a table, as figures, in words."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bfl.commands.study import add_place_to, opened
from bfl.commands.terminal import path_argument
from bfl.errors import ConfigurationError, DataError, unknown_name
from bfl.experiments.studies.figures import draw_study
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import FORMATS
from bfl.experiments.studies.gathering import merge
from bfl.experiments.studies.pages import rewrite, write_folders
from bfl.experiments.studies.report import study_report
from bfl.experiments.studies.table import study_table

MERGE = "study merge"
"""The command's name, of two words."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to those of ``bfl``."""
    table = commands.add_parser("table", help="print a study's table next to the published one")
    table.add_argument(
        "study", type=path_argument, metavar="STUDY", help="the study's folder, or its TOML file"
    )
    add_place_to(table)
    table.add_argument("--format", default="markdown", metavar=f"{{{','.join(FORMATS)}}}")
    table.add_argument(
        "--write", action="store_true", help="write all formats into the study's folder as well"
    )
    table.set_defaults(run=print_table)
    merged = commands.add_parser(
        MERGE, help="put the results of several machines, or of shards, into one folder"
    )
    merged.add_argument(
        "into", type=path_argument, metavar="INTO", help="the folder, new or with results"
    )
    merged.add_argument(
        "sources",
        type=path_argument,
        nargs="+",
        metavar="FROM",
        help="a study's folder, or one of results",
    )
    merged.set_defaults(run=merge_results)
    pages = commands.add_parser(
        "verdicts",
        help="write anew the tables and the orders in pages of results, from the results",
    )
    pages.add_argument(
        "pages", type=path_argument, nargs="+", metavar="PAGE", help="a Markdown file"
    )
    pages.add_argument(
        "--write", action="store_true", help="write the tables and figures of its studies as well"
    )
    pages.set_defaults(run=write_pages)


def print_table(given: argparse.Namespace) -> None:
    """Print a study's table."""
    if given.format not in FORMATS:
        raise ConfigurationError(unknown_name("--format", given.format, FORMATS))
    asked = opened(given.study, given)
    table = study_table(asked)
    print(FORMATS[given.format][1](table), end="")
    if given.write:
        for name, write in FORMATS.values():
            if text := write(table):
                asked.folder.write(name, text.encode())


def plot_study(path: Path, given: argparse.Namespace) -> None:
    """Draw a study's figures and print where they are."""
    asked = opened(path, given)
    paths = draw_study(asked)
    if not paths:
        raise DataError(f"{asked.folder.path} holds nothing to draw yet")
    for figure in paths:
        print(figure)


def report_of(path: Path, given: argparse.Namespace) -> tuple[Path, str]:
    """Return a study's folder and its report."""
    asked = opened(path, given)
    return asked.folder.path, study_report(asked)


def is_study_place(path: Path) -> bool:
    """Return whether a path is that of a study: its TOML file or its folder."""
    return path.suffix == ".toml" or StudyFolder(path).holds_study()


def merge_results(given: argparse.Namespace) -> None:
    """Put results together, and say which are new."""
    into = StudyFolder(given.into)
    new = merge(into, [StudyFolder(source) for source in given.sources])
    for name, source in new.items():
        print(f"{name}: from {source}")
    print(f"{len(new)} results are new in {given.into}")


def write_pages(given: argparse.Namespace) -> None:
    """Write the sections of pages anew, and with --write what else is made of the results."""
    for page in given.pages:
        if given.write:
            write_folders(page)
        rewrite(page)
        print(page)


def in_words(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments with the two words ``study merge`` as the one command."""
    words = MERGE.split()
    joined = list(arguments[: len(words)]) == words
    return [MERGE, *arguments[len(words) :]] if joined else list(arguments)
