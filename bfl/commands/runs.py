"""The commands that look at runs and configurations: ``bfl runs`` and ``bfl show``."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import tomli_w

from bfl.commands.terminal import add_run_config_to, console, path_argument
from bfl.configuration import refuse_unread, resolve
from bfl.configuration.sources import read_run_config
from bfl.engine.flower.app import FlowerApp
from bfl.errors import ConfigurationError, DataError
from bfl.evaluation.regression import ERROR
from bfl.experiments.results import run_folder as files
from bfl.experiments.results.table import metrics_table, print_rows
from bfl.experiments.run.simulation import with_closing

SHOWN = ("accuracy", ERROR, "negative-log-likelihood", "expected-calibration-error")
"""The metrics of ``bfl runs``."""


def add_to(listing: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl runs``."""
    text = "a folder of runs (default: runs); the newest is printed last"
    listing.add_argument("folder", type=path_argument, nargs="?", default=Path("runs"), help=text)
    listing.set_defaults(run=list_runs)


def list_runs(given: argparse.Namespace) -> None:
    """Print name, state and final metrics of the runs in a folder, the newest last."""
    configs = sorted(given.folder.rglob(files.CONFIG), key=lambda path: path.stat().st_mtime)
    if not configs:
        raise DataError(f"there is no run in {given.folder}")
    rows = []
    for path in (config.parent for config in configs):
        folder, row = files.RunFolder(path), {"run": str(path.relative_to(given.folder))}
        try:
            rounds, planned = folder.rounds(), folder.config().get("rounds")
            found = folder.read_json(files.METRICS, {})
            own = re.fullmatch(r"(.+)-(?:local-\d+|central)", path.name)
            if own and path.with_name(own[1]).is_dir():
                row["run"] += f" (baseline of {own[1]})"
            state = "running" if files.is_written_to(path) else "finished" if found else "stopped"
            row |= {"state": f"{state}, {len(rounds)} of {planned} rounds"}
            row |= {name: found[name] for name in SHOWN if name in found}
        except DataError as error:
            row["state"] = f"unreadable: {error}"
        rows.append(row)
    print_rows(rows, f"{len(rows)} runs in {given.folder}")


def add_show_to(show: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl show``."""
    show.add_argument("folder", nargs="?", type=path_argument, help="the run's folder")
    text = """key=value pairs, 'strategy="pvi" rounds=3', or a TOML file, as for bfl run"""
    add_run_config_to(show, text)
    show.set_defaults(run=show_run)


def show_run(given: argparse.Namespace) -> None:
    """Print a run's metrics, or a resolved configuration as TOML."""
    if given.folder is not None:
        if given.run_config:
            raise ConfigurationError(
                "show takes a run's folder or --run-config; for both, give its config.toml: "
                f"--run-config {given.folder / 'config.toml'}"
            )
        folder = files.RunFolder.at(given.folder)
        console().print(metrics_table(folder.metrics()))
        return
    values = read_run_config(given.run_config)
    closed = with_closing(FlowerApp.own(), values, lambda line: print(f"# {line}"))
    configuration = resolve(closed, check_data=False)  # the data may be elsewhere
    refuse_unread(configuration, values)
    print(f"# {configuration.title}", tomli_w.dumps(configuration.values), sep="\n")
