"""The commands that look at runs and configurations: ``bfl runs``, ``compare`` and ``show``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from bfl.commands.terminal import (
    add_run_config_to,
    check_suffix,
    console,
    path_argument,
    write_output,
)
from bfl.configuration import refuse_unread, resolve
from bfl.configuration.settings import given_values, in_sections, named_strategy
from bfl.configuration.sources import read_with_sources
from bfl.engine.flower import FlowerApp
from bfl.errors import BflError, ConfigurationError, DataError
from bfl.evaluation.regression import ERROR
from bfl.experiments.comparison import (
    ListedRun,
    chosen_runs,
    curves_of,
    differing_keys,
    labels,
    overlay,
    runs_in,
)
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.table import metrics_table, print_rows
from bfl.experiments.run.simulation import with_closing
from bfl.experiments.studies.results import NO_METRICS, open_study

METRICS = ("accuracy", ERROR, "negative-log-likelihood", "expected-calibration-error")
"""The metrics of ``bfl runs``; ``bfl compare`` shows all metrics of the runs."""


def add_to(listing: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl runs``."""
    listing.add_argument(
        "folder",
        type=path_argument,
        nargs="?",
        default=Path("runs"),
        help="a folder of runs, a study's, or its TOML file (default: runs); printed in the order "
        "in which they began, the newest last",
    )
    listing.set_defaults(run=list_runs)


def add_comparison_to(compare: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl compare``."""
    compare.add_argument(
        "runs",
        type=path_argument,
        nargs="+",
        metavar="RUN",
        help="a run's folder, or a folder of a study or of results with all its runs",
    )
    compare.add_argument(
        "--output",
        type=path_argument,
        default=Path("comparison.png"),
        metavar="FILE",
        help="the figure's file, a PNG (default: comparison.png)",
    )
    compare.set_defaults(run=compare_runs)


def list_runs(given: argparse.Namespace) -> None:
    """Print the runs of a folder, the newest last: states, differing keys and metrics."""
    left_out: dict[str, BflError] = {}
    is_file = given.folder.suffix == ".toml"
    folder = open_study(given.folder).folder.path if is_file else given.folder
    found = sorted(runs_in(folder, left_out), key=ListedRun.began)
    configs: list[Mapping[str, Any]] = []
    for run in found:
        with suppress(BflError):  # the run's row has the error
            configs += [run.keys] if run.has_begun else []
    keys = differing_keys(configs)
    rows = [run.row(keys, METRICS) for run in found]
    absent = {m for m in METRICS if all(each.get(m) is None for each in rows)}
    rows = [{k: v for k, v in each.items() if k not in absent} for each in rows]
    print_rows(rows, f"{len(found)} runs in {folder}")
    for name, error in left_out.items():
        print(f"left out: {name}: {'; '.join(str(error).splitlines())}")


def compare_runs(given: argparse.Namespace) -> None:
    """Print the differing keys and all metrics of runs, and draw their curves."""
    check_suffix("--output", given.output, ".png")
    runs = chosen_runs(given.runs)
    if len(runs) < 2:
        raise ConfigurationError(f"there is one run in {given.runs[0]}; a comparison takes two")
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder.path) for run in runs]
    configs = [run.keys for run in runs]
    keys = differing_keys(configs)
    numbers = [
        name
        for name in dict.fromkeys(name for run in runs for name in run.result[0])
        if name not in NO_METRICS
        and any(isinstance(run.result[0].get(name), float) for run in runs)
    ]
    # A column for each run, as there are more metrics than runs.
    shown = [run.row(keys, numbers) for run in runs]
    lines = [
        {"": name, **{column: row.get(name) for column, row in zip(names, shown, strict=True)}}
        for name in ("state", *keys, *numbers)
    ]
    print_rows(lines, f"{len(runs)} runs; what differs, and the metrics of their ends")
    points = [run.result[1] for run in runs]
    for name, own in zip(names, points, strict=True):
        if not any(curves_of(own)):
            there = "its metrics are in the table" if numbers else "it has no metrics either"
            print(f"{name}: no curve, as the server has not evaluated a round; {there}")
    figure = overlay(dict(zip(labels(names, configs), points, strict=True)))
    if figure is None:
        if not numbers:
            raise DataError("no round of these runs was evaluated: there is no curve to draw")
        print(f"no figure: {given.output} is not written")
        return
    write_output(given.output, figure)


def add_show_to(show: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl show``."""
    show.add_argument("folder", nargs="?", type=path_argument, help="the run's folder")
    add_run_config_to(
        show,
        """key=value pairs, 'strategy="pvi" rounds=3', or a TOML file, as for flower-simulation""",
    )
    show.set_defaults(run=show_run)


def show_run(given: argparse.Namespace) -> None:
    """Print a run's metrics or a resolved configuration."""
    to = console()
    if given.folder is not None:
        if given.run_config:
            raise ConfigurationError(
                "show takes a run's folder or --run-config; for both, give its config.toml: "
                f"--run-config {given.folder / 'config.toml'}"
            )
        folder = RunFolder.at(given.folder)
        to.print(metrics_table(folder.metrics(), folder.config().get("mc-samples")))
        return
    read = read_with_sources(given.run_config)
    values = {key: value for key, (value, _) in read.items()}
    closed = with_closing(FlowerApp.own(), values, to.print)
    configuration = resolve(closed, check_data=False)  # the data may be elsewhere
    refuse_unread(configuration, values)
    table = Table(title=configuration.title, title_justify="default")
    for header in ("key", "value", "from"):
        table.add_column(header, overflow="fold")
    strategy = named_strategy(configuration.keys.strategy)
    sources = dict.fromkeys(configuration.values, "default")
    sources |= dict.fromkeys(strategy.values, f"strategy {strategy.name}")
    sources |= {key: source for key, (_, source) in read.items() if key in given_values(values)}
    sources |= dict.fromkeys(closed.keys() - values.keys(), "default of bfl run")
    tables = in_sections({key: sources[key] for key in configuration.values})
    top = {key: origin for key, origin in tables.items() if isinstance(origin, str)}
    for section in (top, *(each for each in tables.values() if isinstance(each, dict))):
        for key, origin in section.items():
            table.add_row(key, escape(repr(configuration.values[key])), escape(origin))
        table.add_section()
    to.print(table)
