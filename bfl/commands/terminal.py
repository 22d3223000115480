"""Terminal of the commands: tables, shared options, and one message with a status on an error."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bfl.commands.interruption import Interruption
from bfl.errors import BflError, ConfigurationError, DataError
from bfl.files import given_path, write_atomically
from bfl.texts import for_terminal


def exits_with_status(command: Callable[[list[str] | None], None]) -> Callable[..., int]:
    """Return a command that returns its exit status.

    0, 2 for a refused input, 1 for a failure, 130 when it has been interrupted (Ctrl-C); a command
    that a signal has interrupted does not return but ends the process, after SIGTERM with 143.
    """

    @wraps(command)
    def run(arguments: list[str] | None = None) -> int:
        with Interruption() as interruption:
            try:
                command(arguments)
            # Ray, which sets a handler of its own while it starts, raises SystemExit.
            except (KeyboardInterrupt, SystemExit, BflError, OSError) as error:
                if interruption.number or isinstance(error, KeyboardInterrupt):
                    return interruption.over(error)
                if isinstance(error, SystemExit):
                    raise
                if isinstance(error, ConfigurationError | DataError):
                    return _say("refused", str(error), 2)
                reason = str(error)
                if isinstance(error, OSError):
                    where = f" {error.filename}" if error.filename else ""
                    reason = f"cannot use{where}: {error.strerror or error}"
                return _say("failed", reason, 1)
            return 0

    return run


def _say(what: str, reason: str, status: int) -> int:
    lines = for_terminal(reason).splitlines()
    text = lines[0] if len(lines) == 1 else "\n  ".join(["", *lines])
    print(f"{what}: {text}", file=sys.stderr)
    return status


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings without the line of code that they are from."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"warning: {for_terminal(str(message))}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def path_argument(given: str) -> Path:
    """Return the path that an argument is: the type of every argument that is one."""
    try:
        return given_path(given, "path")
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def write_output(path: Path, data: bytes) -> None:
    """Write a command's output as a whole, and print its path."""
    write_atomically(path, data)
    print(path)


def check_suffix(option: str, path: Path, *suffixes: str) -> None:
    """Refuse an output that is not named as a file of its kind, and may be another one."""
    if path.suffix.lower() not in suffixes:
        allowed = " or ".join(suffixes)
        raise ConfigurationError(f"{option} is {path}; allowed: a name that ends in {allowed}")


def check_new(output: Path) -> None:
    """Refuse an ``--output`` that is there, or whose folder is not."""
    if output.exists():
        raise ConfigurationError(f"--output: {output} is there already; choose another name")
    if not output.absolute().parent.is_dir():
        raise ConfigurationError(f"--output: there is no folder {output.absolute().parent}")


def add_run_config_to(options: argparse.ArgumentParser, description: str) -> None:
    """Add ``--run-config``, which may be given several times."""
    options.add_argument(
        "--run-config", action="append", default=[], metavar="PAIRS|FILE", help=description
    )


def add_plugins_to(options: argparse.ArgumentParser) -> None:
    """Add ``--plugins``."""
    text = "with the parts of these files and modules as well, as in the key plugins"
    options.add_argument("--plugins", default="", metavar="FILES", help=text)


def console() -> Console:
    """Return where tables go: as wide as the terminal; into a pipe or a file, as they need."""
    return Console(width=None if sys.stdout.isatty() else 10_000)


def as_markdown(table: Table) -> str:
    """Return a table as Markdown, under its title."""
    head = [str(column.header) for column in table.columns]
    lines = [head, ["---"] * len(head)]
    for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
        plain = [Text.from_markup(str(cell)).plain.replace("|", "\\|") for cell in cells]
        lines.append([f"`{name}`", *plain])
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"## {table.title}\n\n{text}" if table.title else text
