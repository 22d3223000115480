"""The command ``bfl``: which commands there are; only the one that is given is imported."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from bfl import __version__
from bfl.commands.terminal import add_plugins_to, exits_with_status
from bfl.errors import ConfigurationError, unknown_name

COMMANDS = {
    "run": ("flower_simulation.add_to", "simulate a federation, as flower-simulation does"),
    "list": ("choices.add_list_to", "what a key can be set to, for instance: strategy"),
    "keys": ("choices.add_keys_to", "all configuration keys with their defaults"),
    "check": ("check.add_to", "say what a run finds in its data, and all that it would refuse"),
    "plot": ("study.add_plot_to", "draw the figures of a run or of a study"),
    "report": ("study.add_report_to", "write a report: one HTML file to send"),
    "init": ("study.add_init_to", "make a folder to begin with: configuration, rule and study"),
    "show": ("runs.add_show_to", "print a run's final metrics, or a configuration with defaults"),
    "study": ("study.add_to", "make the missing runs of a study"),
    "table": ("study.add_table_to", "print a study's table next to the published one"),
    "predict": ("predict.add_to", "predict images with the posterior of a run"),
    "evaluate": ("predict.add_evaluate_to", "evaluate a finished run on any labelled data set"),
    "close": ("flower_simulation.add_close_to", "make a finished simulation's closing round"),
    "runs": ("runs.add_to", "list the runs of a folder: state and final metrics"),
    "federation": ("federation.add_to", "a federation on real machines: set up, changed, and run"),
}
"""The commands: the function that adds a command's options, and what the command does."""


def parser(given: str) -> argparse.ArgumentParser:
    """Return the command's options, with those of the command that is given, if it is one."""
    options = argparse.ArgumentParser(prog="bfl", description="Bayesian federated learning.")
    options.add_argument("--version", action="version", version=f"bfl {__version__}")
    commands = options.add_subparsers(dest="command", required=True)
    for name, (_, what) in COMMANDS.items():
        command = commands.add_parser(name, help=what)
        if name == given:
            module, function = COMMANDS[name][0].split(".")
            getattr(import_module(f"bfl.commands.{module}"), function)(command)
            if name != "federation":
                add_plugins_to(command)
    return options


@exits_with_status
def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        raise ConfigurationError(unknown_name("command", words[0], COMMANDS))
    given = parser(words[0] if words else "").parse_args(words)
    from bfl.plugins import load_plugins  # which takes pydantic: not for --help

    load_plugins(getattr(given, "plugins", ""))
    given.run(given)


if __name__ == "__main__":
    sys.exit(main())
