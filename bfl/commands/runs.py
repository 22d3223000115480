"""The commands ``bfl runs``, ``bfl compare`` and ``bfl show``: what runs are and have reached."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from bfl.commands.terminal import (
    add_run_config_to,
    check_suffix,
    console,
    path_argument,
    write_output,
)
from bfl.configuration import Configuration, resolve, unread_settings
from bfl.configuration.settings import given_values, in_sections, named_strategy
from bfl.configuration.sources import read_with_sources
from bfl.errors import BflError, ConfigurationError, DataError
from bfl.evaluation.regression import ERROR
from bfl.experiments.comparison import (
    ListedRun,
    chosen_runs,
    curves_of,
    differing_keys,
    labels,
    overlay,
    row,
    runs_in,
)
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.table import metrics_table, results_table, tabulated

METRICS = ("accuracy", ERROR, "negative-log-likelihood", "expected-calibration-error")
"""The metrics that are listed; ``bfl compare`` shows all that the runs have."""

FOLDER = "runs"
WIDEST = 100_000
"""Columns that a table may have."""


def add_to(listing: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl runs``."""
    listing.add_argument(
        "folder",
        type=path_argument,
        nargs="?",
        default=Path(FOLDER),
        help=f"a folder of runs, or a study's (default: {FOLDER})",
    )
    listing.set_defaults(run=list_runs)


def add_comparison_to(compare: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl compare``."""
    compare.add_argument(
        "runs",
        type=path_argument,
        nargs="+",
        metavar="RUN",
        help="a run's folder, or a study's, or one of results: all runs",
    )
    compare.add_argument(
        "--output",
        type=path_argument,
        default=Path("comparison.png"),
        metavar="FILE",
        help="what gets the figure, a PNG (default: comparison.png)",
    )
    compare.set_defaults(run=compare_runs)


def list_runs(given: argparse.Namespace) -> None:
    """Print the runs of a folder: where each stands, in what they differ, their metrics."""
    left_out: dict[str, BflError] = {}
    found = runs_in(given.folder, left_out)
    rows = [row(run, _differing(found), METRICS) for run in found]
    absent = {m for m in METRICS if all(each.get(m) is None for each in rows)}
    rows = [{k: v for k, v in each.items() if k not in absent} for each in rows]
    _print(rows, f"{len(found)} runs in {given.folder}")
    for name, error in left_out.items():
        print(f"left out: {name}: {'; '.join(str(error).splitlines())}")


def compare_runs(given: argparse.Namespace) -> None:
    """Print in what runs differ and all their metrics, and overlay their curves."""
    check_suffix("--output", given.output, ".png")
    runs = chosen_runs(given.runs)
    if len(runs) < 2:
        raise ConfigurationError(f"there is one run in {given.runs[0]}; a comparison takes two")
    results = [run.result for run in runs]
    configs = [result.configuration for result in results]
    names = list(dict.fromkeys(name for result in results for name in result.metrics))
    keys = differing_keys(configs)
    # One column for a run: there are more metrics than runs.
    columns = _unambiguous(runs)
    shown = [row(run, keys, names) for run in runs]
    lines = [
        {"": name, **{column: shown[i].get(name) for i, column in enumerate(columns)}}
        for name in ("state", *keys, *names)
    ]
    _print(lines, f"{len(runs)} runs; what differs, and the metrics of their ends")
    for column, result in zip(columns, results, strict=True):
        if not any(curves_of(result)):
            there = "its metrics are in the table" if result.metrics else "it has no metrics either"
            print(f"{column}: the server has evaluated no round of it, so it has no curve; {there}")
    legend = labels(columns, configs)
    figure = overlay(dict(zip(legend, results, strict=True)))
    if figure is None:
        if not names:
            raise DataError("no round of these runs was evaluated: there is no curve to draw")
        print(f"no figure: {given.output} is not written")
        return
    write_output(given.output, figure)


def _differing(runs: Sequence[ListedRun]) -> list[str]:
    """Return the keys that differ between the runs that can be read."""
    configs: list[Mapping[str, Any]] = []
    for run in runs:
        with suppress(BflError):  # its own row says so
            configs += [run.result.configuration] if run.has_begun else []
    return differing_keys(configs)


def _unambiguous(runs: Sequence[ListedRun]) -> list[str]:
    """Return the runs' names; their paths where two have one name."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder.path) for run in runs]


def _print(rows: Sequence[dict[str, Any]], title: str) -> None:
    """Print a table of which nothing is cut off.

    Where a terminal is narrower, its columns follow in further tables, each with the first one.
    """
    console = Console()
    if not (rows and console.is_terminal):
        console.width = WIDEST
        table = results_table(rows, title)
        console.width = Measurement.get(console, console.options, table).maximum
        console.print(table)
        return
    for names in _fitting(rows, console.width):
        part = [{name: row.get(name) for name in names} for row in rows]
        console.print(results_table(part, title))
        title = ""


def _fitting(rows: Sequence[dict[str, Any]], width: int) -> list[list[str]]:
    """Return the columns of tables that fit in a width; the first column is in each, and folds."""
    columns, texts = tabulated(rows)
    wide = {
        name: 5 + max(len(name), *(len(row[i]) for row in texts))
        for i, (name, _) in enumerate(columns)
    }
    first, *others = wide
    parts: list[list[str]] = [[first]]
    room = width - min(wide[first], width // 2)
    for name in others:
        if sum(wide[each] for each in parts[-1][1:]) + wide[name] > room and len(parts[-1]) > 1:
            parts.append([first])
        parts[-1].append(name)
    return parts


def add_show_to(show: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl show``."""
    show.add_argument("folder", nargs="?", type=path_argument, help="the run's folder")
    add_run_config_to(
        show,
        """key=value pairs, 'strategy="pvi" rounds=3', or a TOML file, as for flower-simulation""",
    )
    show.set_defaults(run=show_run)


def show_run(given: argparse.Namespace) -> None:
    """Print what is asked for."""
    if given.folder is None:
        show_configuration(given.run_config, console())
    elif given.run_config:
        raise ConfigurationError(
            "show takes a run's folder or --run-config; for both, give its config.toml: "
            f"--run-config {given.folder / 'config.toml'}"
        )
    else:
        folder = run_folder(given.folder)
        console().print(metrics_table(folder.metrics(), folder.config().get("mc-samples")))


def run_folder(path: Path) -> RunFolder:
    """Return the folder of a run.

    Raises:
        DataError: It is none.
    """
    folder = RunFolder(path)
    if not folder.holds("config.toml"):
        raise DataError(f"{path} is not the folder of a run: it has no config.toml")
    return folder


def show_configuration(texts: list[str], to: Console) -> None:
    """Print what a run configuration resolves to; its data need not be on this machine."""
    read = read_with_sources(texts)
    values = {key: value for key, (value, _) in read.items()}
    configuration = resolve(values, check_data=False)
    table = Table(title=configuration.title, title_justify="left")
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
    for warning in unread_settings(configuration, sources):
        to.print(f"warning: {warning}", soft_wrap=True, highlight=False)


def origins(configuration: Configuration, sources: Mapping[str, str]) -> dict[str, str]:
    """Return where each value of a configuration comes from: default, strategy, file or pairs."""
    strategy = named_strategy(configuration.keys.strategy)
    named = dict.fromkeys(strategy.values, f"strategy {strategy.name}")
    return {key: {**named, **sources}.get(key, "default") for key in configuration.values}
