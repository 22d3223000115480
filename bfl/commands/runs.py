"""The commands ``bfl runs`` and ``bfl compare``: lists and comparisons of runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bfl.commands.terminal import (
    check_suffix,
    path_argument,
    write_output,
)
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
from bfl.experiments.results.table import print_rows
from bfl.experiments.studies.gathering import open_study

METRICS = ("accuracy", ERROR, "negative-log-likelihood", "expected-calibration-error")
"""The metrics of ``bfl runs``; ``bfl compare`` shows all metrics of the runs."""


FOLDER = "runs"


def add_to(listing: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl runs``."""
    listing.add_argument(
        "folder",
        type=path_argument,
        nargs="?",
        default=Path(FOLDER),
        help=f"a folder of runs, a study's, or its TOML file (default: {FOLDER}); printed in the "
        "order in which they began, the newest last",
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
    rows = [row(run, _differing(found), METRICS) for run in found]
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
    results = [run.result for run in runs]
    configs = [result.configuration for result in results]
    names = list(dict.fromkeys(name for result in results for name in result.metrics))
    keys = differing_keys(configs)
    # A column for each run, as there are more metrics than runs.
    columns = _unambiguous(runs)
    shown = [row(run, keys, names) for run in runs]
    lines = [
        {"": name, **{column: shown[i].get(name) for i, column in enumerate(columns)}}
        for name in ("state", *keys, *names)
    ]
    print_rows(lines, f"{len(runs)} runs; what differs, and the metrics of their ends")
    for column, result in zip(columns, results, strict=True):
        if not any(curves_of(result)):
            there = "its metrics are in the table" if result.metrics else "it has no metrics either"
            print(f"{column}: no curve, as the server has not evaluated a round; {there}")
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
        with suppress(BflError):  # the run's row has the error
            configs += [run.result.configuration] if run.has_begun else []
    return differing_keys(configs)


def _unambiguous(runs: Sequence[ListedRun]) -> list[str]:
    """Return the runs' names; their paths if two have the same name."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder.path) for run in runs]
