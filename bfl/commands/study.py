"""The commands of studies: runs, merged results, tables, figures and pages."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path

from rich.console import Console

from bfl.commands.terminal import add_run_config_to, path_argument
from bfl.configuration.configuration import Value
from bfl.configuration.sources import read_run_config
from bfl.engine.flower import FlowerApp, RayEngine
from bfl.errors import ConfigurationError, DataError, RunError, unknown_name
from bfl.experiments.results.environment import describe_environment
from bfl.experiments.run.resume import FREE_TO_CHANGE
from bfl.experiments.run.simulation import BACKENDS, read_backend_config
from bfl.experiments.studies.figures import draw_study
from bfl.experiments.studies.folder import StudyFolder, state
from bfl.experiments.studies.gathering import (
    OUTPUT,
    OpenedStudy,
    begin,
    gather,
    merge,
    open_study,
    results_next_to,
)
from bfl.experiments.studies.pages import FORMATS, rewrite, study_report
from bfl.experiments.studies.planning import (
    PlannedRun,
    check_columns,
    plan,
    same_runs,
    taken_from,
)
from bfl.experiments.studies.reading import GIVEN_BY_THE_RUNNER
from bfl.experiments.studies.run_result import RunResult
from bfl.experiments.studies.runner import MakeEngine, Outcome, SerialEngine, make_runs
from bfl.experiments.studies.scale import REDUCIBLE
from bfl.experiments.studies.table import study_table
from bfl.printing import console_of_lines

MACHINE_KEYS = sorted((FREE_TO_CHANGE - set(GIVEN_BY_THE_RUNNER)) | {"data-dir"})
"""Keys that --run-config may set for a study, as they do not affect its results."""


def add_to(study: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl study``."""
    study.add_argument("file", type=path_argument, metavar="FILE", help="the study's TOML file")
    add_place_to(study)
    add_run_config_to(
        study,
        f"""keys of this machine, 'data-dir="FOLDER"'; allowed: {", ".join(MACHINE_KEYS)}""",
    )
    study.add_argument(
        "--backend",
        default="ray",
        metavar="{ray,serial}",
        help="ray: Flower's engine, started once; serial: in this process, without Ray",
    )
    study.add_argument(
        "--backend-config",
        default="{}",
        metavar="JSON",
        help="""for instance '{"client_resources": {"num_cpus": 1, "num_gpus": 0.1}}'""",
    )
    study.add_argument(
        "--shard",
        default="",
        metavar="I/N",
        help="the I-th of N parts of the runs, for N parallel jobs: 1/4 to 4/4",
    )
    study.add_argument(
        "--dry-run", action="store_true", help="check all runs and list them; make none"
    )
    study.add_argument(
        "--verbose", action="store_true", help="show the runs' output instead of logging it"
    )
    study.set_defaults(run=run_study)


def add_place_to(options: argparse.ArgumentParser) -> None:
    """Add the options of a study's folder, scale, runs and further results."""
    options.add_argument(
        "--output",
        type=path_argument,
        default=Path(OUTPUT),
        metavar="DIR",
        help=f"the parent of the study's folder (default: {OUTPUT})",
    )
    options.add_argument(
        "--scale",
        default="",
        metavar="NAME=AMOUNT,...",
        help="a reduction, such as rounds=0.05,train-examples=0.2,seeds=1: below 1 a share, from 1 "
        f"a number, which can be greater for seeds; names: {', '.join(REDUCIBLE)}",
    )
    options.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="select the runs whose name contains this, or matches it with * and ?; repeatable",
    )
    options.add_argument(
        "--results",
        type=path_argument,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with runs.jsonl, whose runs are not repeated; repeatable "
        "(default: docs/results/STUDY of the checkout of the study's file; 'none': no folder)",
    )


def opened(path: Path, given: argparse.Namespace) -> OpenedStudy:
    """Return the study of a path and the options of ``add_place_to``."""
    return open_study(
        path, output=given.output, scale=given.scale, only=given.only, results=given.results
    )


def run_study(given: argparse.Namespace) -> None:
    """Make the missing runs of a study."""
    if given.backend not in BACKENDS:
        raise ConfigurationError(unknown_name("--backend", given.backend, BACKENDS))
    backend_config = read_backend_config(given.backend_config)
    machine = machine_keys(given.run_config)
    if given.file.is_dir():
        raise ConfigurationError(f"{given.file} is a folder; allowed: a study's TOML file")
    study = opened(given.file, given)
    folder = study.folder
    console = console_of_lines()
    console.print("\n".join(filter(None, (study.study.title, study.study.note))))
    app = FlowerApp.own()
    planned, missing = plan(
        study, machine, app.check_before_start, data_may_be_missing=given.dry_run
    )
    chosen = [run for run in planned if study.wanted(run.run)]
    check_columns(study.study, planned)
    # Without the data, as in a dry run, the clients' numbers of examples are unknown.
    here = {run.name for run in chosen if run.data[0] not in missing}
    same = same_runs(planned, app.client_sizes, here)
    runs = sharded(chosen, same, given.shard)
    counts = {run.name for run in chosen} | {*same} | {*same.values()}
    finished = gather(
        replace(study, wanted=lambda run: run.name in counts),
        _of_others(given, study),
        pass_over_damaged=True,
    ).finished
    same = taken_from(runs, same, finished)
    if given.dry_run:
        _show_plan(console, folder, missing, runs, finished)
    for name, first in same.items():
        console.print(f"  {name}: the same computation as {first}, made once")
    if given.dry_run:
        return
    begin(folder, study.study, describe_environment())
    engine = _engine(app, given, runs, backend_config)
    outcome = make_runs(folder, runs, engine, finished=finished, same=same, verbose=given.verbose)
    _report(console, folder, outcome, len(runs), _table_command(given))


def _of_others(given: argparse.Namespace, opened: OpenedStudy) -> list[RunResult]:
    """Return the results of the studies that the study's file names in ``reuse``."""
    study, folder = opened.study, opened.folder
    names = [f"{name}{study.scale.suffix}" for name in study.reuse]
    in_checkout = [] if given.results else [results_next_to(study.source, n) for n in names]
    places = [*(folder.path.parent / name for name in names), *chain.from_iterable(in_checkout)]
    return [result for place in places for result in StudyFolder(place).results().values()]


def machine_keys(texts: Sequence[str]) -> dict[str, Value]:
    """Return the keys of this machine that ``--run-config`` gives.

    Raises:
        ConfigurationError: A key affects the results, or cannot be read.
    """
    keys = read_run_config(texts)
    for key in keys:
        if key not in MACHINE_KEYS:
            raise ConfigurationError(
                f"--run-config: {key} cannot be given for a study; allowed: "
                f"{', '.join(MACHINE_KEYS)} (keys that affect results belong into the study's "
                "file, and reductions into --scale)"
            )
    return keys


def sharded(runs: Sequence[PlannedRun], same: Mapping[str, str], text: str) -> list[PlannedRun]:
    """Return every n-th run, from the i-th; runs of one computation stay together.

    Args:
        same: Runs that repeat the computation of an earlier one, with its name.
        text: ``i/n``; empty: all runs.

    Raises:
        ConfigurationError: The text does not have that form, or i is outside 1..n.
    """
    if not text:
        return list(runs)
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ConfigurationError(
            f"--shard is '{text}'; allowed: I/N with I from 1 to N, such as 1/4 to 4/4"
        )
    firsts = list(dict.fromkeys(same.get(run.name, run.name) for run in runs))
    kept = set(firsts[int(part) - 1 :: int(parts)])
    return [run for run in runs if same.get(run.name, run.name) in kept]


def _engine(
    app: FlowerApp,
    given: argparse.Namespace,
    runs: Sequence[PlannedRun],
    backend_config: dict[str, object],
) -> MakeEngine:
    """Return the constructor of the engine of a study's runs."""
    _share_threads(runs)
    if given.backend == "serial":
        return lambda: nullcontext(SerialEngine(app, backend_config))
    most = max((run.clients for run in runs), default=1)
    return lambda: RayEngine(app, backend_config, most_clients=most, verbose=given.verbose)


def _share_threads(runs: Sequence[PlannedRun]) -> None:
    """Set the number of the server's threads for all runs, if some runs depend on it.

    All runs share a process, in which TensorFlow's number of threads is fixed by the first one.

    Raises:
        ConfigurationError: The runs depend on different numbers.
    """
    of_runs = [run.configuration for run in runs if run.configuration.server_network_decides]
    threads = {configuration.keys.server_threads for configuration in of_runs}
    if len(threads) > 1:
        raise ConfigurationError(
            f"server-threads is {' and '.join(map(str, sorted(threads)))} in runs of one study, "
            "which share a process; allowed: one number for all that are made at once (--only)"
        )
    for number in threads:
        os.environ["BFL_CPUS"] = str(number)


def _show_plan(
    console: Console,
    folder: StudyFolder,
    missing: Mapping[str, str],
    runs: Sequence[PlannedRun],
    finished: Mapping[str, RunResult],
) -> None:
    for run in runs:
        where = state(folder, run.name, run.rounds)
        if run.name in finished and where != "done":
            source = os.path.relpath(finished[run.name].source, folder.path.parent)
            where = f"done as {source}"
        console.print(f"  {run.name}: {where}")
    console.print(f"{len(runs)} runs in {folder.path}, all configurations are sound")
    for text in missing.values():
        console.print(f"missing: {text}")


def _table_command(given: argparse.Namespace) -> str:
    """Return the command that prints a study's table, by its file, whose plugins may run."""
    output = [] if given.output == Path(OUTPUT) else ["--output", given.output]
    scale = ["--scale", given.scale] if given.scale else []
    results = chain.from_iterable(("--results", place) for place in given.results)
    return shlex.join(map(str, ("bfl", "table", given.file, *output, *scale, *results)))


def _report(console: Console, folder: StudyFolder, outcome: Outcome, runs: int, table: str) -> None:
    """Print the outcome of the runs; raise if some have failed."""
    done = len(outcome.made) + len(outcome.skipped)
    console.print(f"{done} of {runs} runs are done; results are in {folder.path}")
    console.print(f"their table: {table}")
    if outcome.elsewhere:
        console.print(f"{len(outcome.elsewhere)} runs are being made by another process")
    if outcome.failed:
        head = (
            f"{len(outcome.failed)} of {runs} runs have failed (see {folder.path / 'failures'}); "
            "the same command tries them again"
        )
        lines = [f"{name}: {reason.splitlines()[0]}" for name, reason in outcome.failed.items()]
        raise RunError("\n".join([head, *lines]))


def add_table_to(table: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl table``."""
    table.add_argument(
        "study", type=path_argument, metavar="STUDY", help="the study's folder, or its TOML file"
    )
    add_place_to(table)
    table.add_argument("--format", default="markdown", metavar=f"{{{','.join(FORMATS)}}}")
    table.add_argument(
        "--write", action="store_true", help="also write all formats into the study's folder"
    )
    table.set_defaults(run=print_table)


def add_merge_to(merged: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl study merge``."""
    merged.add_argument(
        "into", type=path_argument, metavar="INTO", help="the folder, new or with results"
    )
    merged.add_argument(
        "sources",
        type=path_argument,
        nargs="+",
        metavar="FROM",
        help="a study's folder, or a folder of results",
    )
    merged.set_defaults(run=merge_results)


def add_verdicts_to(pages: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl verdicts``."""
    pages.add_argument(
        "pages", type=path_argument, nargs="+", metavar="PAGE", help="a Markdown file"
    )
    pages.add_argument(
        "--write", action="store_true", help="also write the tables and figures of its studies"
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
    """Draw a study's figures and print their paths."""
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
    """Return whether a path is a study's TOML file or folder."""
    return path.suffix == ".toml" or StudyFolder(path).holds_study()


def merge_results(given: argparse.Namespace) -> None:
    """Merge results, and print the new ones."""
    into = StudyFolder(given.into)
    new = merge(into, [StudyFolder(source) for source in given.sources])
    for name, source in new.items():
        print(f"{name}: from {source}")
    print(f"{len(new)} results are new in {given.into}")


def write_pages(given: argparse.Namespace) -> None:
    """Rewrite the sections of pages; with --write also tables and figures of their studies."""
    for page in given.pages:
        rewrite(page, folders=given.write)
        print(page)
