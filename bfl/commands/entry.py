"""The entry points: a command can be interrupted before all that it needs has been imported."""

from __future__ import annotations

import importlib
import sys

from bfl.commands.interruption import Interruption
from bfl.printing import print_anywhere


def bfl() -> int:
    """Run the command ``bfl`` and return its exit status."""
    if sys.argv[1:2] in (["run"], ["study"]):
        _greet()
    return _run("bfl.commands.main")


def flower_simulation() -> int:
    """Run the command ``flower-simulation`` and return its exit status."""
    _greet()
    return _run("bfl.commands.flower_simulation")


def _greet() -> None:
    """Print a line in a terminal, at once: what makes runs takes long to import."""
    if sys.stderr.isatty():
        print("bfl is starting", file=sys.stderr)


def _run(module: str) -> int:
    print_anywhere()
    with Interruption() as interruption:
        try:
            main = importlib.import_module(module).main
        except KeyboardInterrupt as error:
            return interruption.over(error)
    return int(main())
