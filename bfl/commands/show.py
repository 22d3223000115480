"""The command ``bfl show``: a run's final metrics, or a resolved run configuration."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bfl.commands.terminal import (
    add_run_config_to,
    console,
    path_argument,
)
from bfl.configuration import Configuration, refuse_unread, resolve
from bfl.configuration.settings import given_values, in_sections, named_strategy
from bfl.configuration.sources import read_with_sources
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.table import metrics_table


def add_to(show: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl show``."""
    show.add_argument("folder", nargs="?", type=path_argument, help="the run's folder")
    add_run_config_to(
        show,
        """key=value pairs, 'strategy="pvi" rounds=3', or a TOML file, as for flower-simulation""",
    )
    show.set_defaults(run=show_run)


def show_run(given: argparse.Namespace) -> None:
    """Print a run's metrics or a resolved configuration."""
    if given.folder is None:
        show_configuration(given.run_config, console())
    elif given.run_config:
        raise ConfigurationError(
            "show takes a run's folder or --run-config; for both, give its config.toml: "
            f"--run-config {given.folder / 'config.toml'}"
        )
    else:
        folder = RunFolder.at(given.folder)
        console().print(metrics_table(folder.metrics(), folder.config().get("mc-samples")))


def show_configuration(texts: list[str], to: Console) -> None:
    """Print a resolved run configuration; its data need not be on this machine."""
    read = read_with_sources(texts)
    values = {key: value for key, (value, _) in read.items()}
    configuration = resolve(values, check_data=False)
    refuse_unread(configuration, values)
    table = Table(title=configuration.title, title_justify="default")
    for header in ("key", "value", "from"):
        table.add_column(header, overflow="fold")
    sources = {key: source for key, (_, source) in read.items() if key in given_values(values)}
    tables = in_sections(origins(configuration, sources))
    top = {key: origin for key, origin in tables.items() if isinstance(origin, str)}
    for section in (top, *(each for each in tables.values() if isinstance(each, dict))):
        for key, origin in section.items():
            table.add_row(key, escape(repr(configuration.values[key])), escape(origin))
        table.add_section()
    to.print(table)


def origins(configuration: Configuration, sources: Mapping[str, str]) -> dict[str, str]:
    """Return the origin of each value of a configuration: default, strategy, file or pairs."""
    strategy = named_strategy(configuration.keys.strategy)
    named = dict.fromkeys(strategy.values, f"strategy {strategy.name}")
    return {key: {**named, **sources}.get(key, "default") for key in configuration.values}
