"""A study made: the runs that are left, by one engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

from rich.console import Console

from bfl.configuration.configuration import Value
from bfl.engine.flower import FlowerApp, RayEngine
from bfl.errors import ConfigurationError, RunError, unknown_name
from bfl.experiments.results.environment import describe_environment
from bfl.experiments.run.resume import FREE_TO_CHANGE
from bfl.experiments.run.simulation import BACKENDS
from bfl.experiments.studies.folder import StudyFolder, state
from bfl.experiments.studies.gathering import OpenedStudy, begin, gather, results_next_to
from bfl.experiments.studies.planning import check_columns, plan, same_runs, taken_from
from bfl.experiments.studies.reading import GIVEN_BY_THE_RUNNER
from bfl.experiments.studies.run_result import RunResult
from bfl.experiments.studies.runner import MakeEngine, Outcome, Runner, SerialEngine
from bfl.experiments.studies.study import Run
from bfl.printing import console_of_lines

MACHINE_KEYS = sorted((FREE_TO_CHANGE - set(GIVEN_BY_THE_RUNNER)) | {"data-dir"})
"""Keys that --run-config may set for a study, as they do not affect its results."""


def make_study(
    study: OpenedStudy,
    machine: Mapping[str, Value],
    *,
    backend: str = "ray",
    backend_config: Mapping[str, Any],
    shard: str = "",
    dry_run: bool = False,
    verbose: bool = False,
    table: str = "",
) -> None:
    """Make the missing runs of a study, and print which they are and what has become of them.

    Args:
        machine: Keys of this machine, such as ``data-dir``.
        backend: "ray", or "serial".
        backend_config: Flower's.
        shard: ``i/n``, the i-th of n parts of the runs; empty: all.
        dry_run: Whether the runs are listed and none is made.
        verbose: Whether the runs' own lines are shown.
        table: The command that prints the study's table, to be told.

    Raises:
        ConfigurationError: Something is refused; nothing has been started.
        RunError: Runs have failed; the others are made.
    """
    if backend not in BACKENDS:
        raise ConfigurationError(unknown_name("backend", backend, BACKENDS))
    check_machine_keys(machine)
    folder = study.folder
    console = console_of_lines()
    console.print("\n".join(filter(None, (study.study.title, study.study.note))))
    app = FlowerApp.own()
    server = app.load_server()
    planned, missing = plan(study, machine, server.check_before_start, data_may_be_missing=dry_run)
    chosen = list(filter(study.wanted, planned))
    check_columns(study.study, planned)
    # Without the data, as in a dry run, the clients' numbers of examples are unknown.
    here = {run.name for run in chosen if run.configuration.keys.dataset not in missing}
    same = same_runs(planned, server.client_sizes, here)
    runs = sharded(chosen, same, shard)
    counts = {run.name for run in chosen} | {*same} | {*same.values()}
    finished = gather(
        replace(study, wanted=lambda run: run.name in counts),
        _of_others(study),
        pass_over_damaged=True,
    ).finished
    same = taken_from(runs, same, finished)
    if dry_run:
        _show_plan(console, folder, missing, runs, finished)
    for name, first in same.items():
        console.print(f"  {name}: the same computation as {first}, made once")
    if dry_run:
        return
    begin(folder, study.study, describe_environment())
    engine = _engine(app, runs, backend, backend_config, verbose)
    runner = Runner(folder, runs, engine, finished=finished, same=same, verbose=verbose)
    _report(console, folder, runner.make_all(), len(runs), table)


def _of_others(opened: OpenedStudy) -> list[RunResult]:
    """Return the results of the studies that the study's file names in ``reuse``."""
    study, folder = opened.study, opened.folder
    names = [f"{name}{study.scale.suffix}" for name in study.reuse]
    by_default = opened.places == results_next_to(study.source, study.folder_name)
    in_checkout = [results_next_to(study.source, n) for n in names] if by_default else []
    places = [*(folder.path.parent / name for name in names), *chain.from_iterable(in_checkout)]
    return [result for place in places for result in StudyFolder(place).results().values()]


def check_machine_keys(keys: Iterable[str]) -> None:
    """Raise unless the keys are those of a machine.

    Raises:
        ConfigurationError: A key affects the results.
    """
    for key in keys:
        if key not in MACHINE_KEYS:
            raise ConfigurationError(
                f"{key} cannot be given for a study; allowed: "
                f"{', '.join(MACHINE_KEYS)} (keys that affect results belong into the study's "
                "file, and reductions into --scale)"
            )


def sharded(runs: Sequence[Run], same: Mapping[str, str], text: str) -> list[Run]:
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
    runs: Sequence[Run],
    backend: str,
    backend_config: Mapping[str, Any],
    verbose: bool,
) -> MakeEngine:
    """Return the constructor of the engine of a study's runs."""
    _share_threads(runs)
    if backend == "serial":
        return lambda: nullcontext(SerialEngine(app, backend_config))
    most = max((run.configuration.keys.clients for run in runs), default=1)
    return lambda: RayEngine(app, backend_config, most_clients=most, verbose=verbose)


def _share_threads(runs: Sequence[Run]) -> None:
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
    runs: Sequence[Run],
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


def _report(console: Console, folder: StudyFolder, outcome: Outcome, runs: int, table: str) -> None:
    """Print the outcome of the runs; raise if some have failed."""
    done = len(outcome.made) + len(outcome.skipped)
    console.print(f"{done} of {runs} runs are done; results are in {folder.path}")
    if table:
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
