"""Runner of a study: makes its missing runs, one process a run, and goes on after a failure."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import tomli_w

from bfl.configuration import resolve
from bfl.configuration.settings import Value
from bfl.errors import BflError, ConfigurationError, RunError
from bfl.experiments.results import run_folder
from bfl.experiments.run.resume import FREE_TO_CHANGE
from bfl.experiments.studies.claims import check_seeds
from bfl.experiments.studies.results import (
    FAILED,
    GIVEN,
    LOG,
    PUBLISHED,
    STUDY_TOML,
    OpenedStudy,
    StudyFolder,
    write_results,
)
from bfl.experiments.studies.study import GIVEN_BY_THE_RUNNER, Run, Study
from bfl.plugins import named_plugins
from bfl.printing import console_of_lines

MACHINE_KEYS = sorted((FREE_TO_CHANGE - set(GIVEN_BY_THE_RUNNER)) | {"data-dir"})
"""Keys that --run-config may set for a study, as they do not affect its results."""

COMMAND = (sys.executable, "-c", "from bfl.commands.entry import bfl; raise SystemExit(bfl())")
"""The command ``bfl``, in this Python."""

SHOWN = {
    "accuracy": "accuracy",
    "root-mean-squared-error": "RMSE",
    "negative-log-likelihood": "NLL",
}
"""The metrics of a finished run that are printed, with their labels."""

PATIENCE = 20.0  # seconds that an interrupted run has to save what it has


def make_study(
    opened: OpenedStudy,
    machine: Mapping[str, Value],
    *,
    backend: Sequence[str] = (),
    dry_run: bool = False,
    command: Sequence[str] = COMMAND,
) -> None:
    """Make the missing runs of a study, and print which they are and what has become of them.

    A run is made if neither its folder nor a file of results has it, under the same configuration.

    Args:
        machine: Keys of this machine, such as ``data-dir``.
        backend: Options of ``bfl run``: ``--backend`` and ``--backend-config``.
        command: The command ``bfl``.

    Raises:
        ConfigurationError: Something is refused; nothing has been started.
        RunError: Runs have failed; the others are made.
    """
    for key in machine:
        if key not in MACHINE_KEYS:
            raise ConfigurationError(
                f"{key} cannot be given for a study; allowed: {', '.join(MACHINE_KEYS)} (keys that "
                "affect results belong into the study's file)"
            )
    study, folder, console = opened.study, opened.folder, console_of_lines()
    console.print(study.title)
    states = opened.results.states
    if states:
        check_seeds(study)
    # A dry run looks at a file that may be somebody else's: its plugins do not run.
    unchecked = dry_run and any(named_plugins(run.values) for run in opened.runs)
    if not unchecked:
        check_runs(opened, machine, check_data=not dry_run)
    if dry_run:
        for run in opened.runs:
            console.print(f"  {run.name}: {states.get(run.name, 'done')}")
        sound = "not checked, for their plugins" if unchecked else "all of them can be made"
        console.print(f"{len(opened.runs)} runs in {folder.path}, {sound}")
        return
    begin(folder, study)
    left = [run for run in opened.runs if run.name in states]
    made, failed = 0, dict[str, str]()
    try:
        for run in left:
            number = f"{opened.runs.index(run) + 1}/{len(opened.runs)}"
            state = states[run.name].replace("missing", "begins").replace("begun,", "resumes after")
            console.print(f"{number} {run.name}: {state}", markup=False)
            started, own = time.monotonic(), folder.run(run.name)
            if run_folder.is_written_to(own.path):
                ended = "another process is working on it"
            elif why := _make(folder, run, machine, [*command, "run", *backend]):
                ended = f"{FAILED}: {why}"
                with suppress(RunError):  # where the folder cannot be written to
                    own.append_text(LOG, ended)
                failed[run.name] = why
            else:
                made += 1
                metrics = own.metrics()
                shown = [f"{SHOWN[name]} {metrics[name]:.4f}" for name in SHOWN if name in metrics]
                seconds = timedelta(seconds=round(time.monotonic() - started))
                ended = f"{'  '.join(shown) or 'done'}  ({seconds})"
            console.print(f"{number} {run.name}: {ended}", markup=False)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note("the same command continues from here")
        raise
    finally:
        write_results(folder, replace(opened, patterns=()).results)
        done = len(opened.runs) - len(left) + made
        console.print(f"{done} of {len(opened.runs)} runs are done; results are in {folder.path}")
    if failed:
        head = (
            f"{len(failed)} of {len(opened.runs)} runs have failed (see {LOG} of their folders in "
            f"{folder.runs}); the same command tries them again"
        )
        raise RunError("\n".join([head, *(f"{name}: {why}" for name, why in failed.items())]))


def check_runs(opened: OpenedStudy, machine: Mapping[str, Value], *, check_data: bool) -> None:
    """Raise ConfigurationError if runs are refused, in one line for each reason with its runs."""
    reasons: dict[str, list[str]] = {}
    for run in opened.runs:
        try:
            values = {**run.values, **machine, "clients": run.configuration.keys.clients}
            resolve(values, check_data=check_data)
        except BflError as error:
            for line in str(error).splitlines():
                reasons.setdefault(line, []).append(run.name)
    if reasons:
        raise ConfigurationError(
            "\n".join(
                f"{reason} (run {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''})"
                for reason, names in reasons.items()
            )
        )


def begin(folder: StudyFolder, study: Study) -> None:
    """Write a study's description into its folder, which can then be read without its file."""
    tables = {**study.tables, "name": study.name}
    if study.published:
        tables["published"] = {**tables["published"], "file": PUBLISHED}
        folder.write(PUBLISHED, study.published.text.encode())
    # Of the axes the order matters, which other writers change.
    axes = [f"{name} = {_inline(values)}\n" for name, values in tables.pop("axes", {}).items()]
    text = f"{tomli_w.dumps(tables)}\n[axes]\n{''.join(axes)}"
    folder.write(STUDY_TOML, text.encode())


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {_inline(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _make(
    folder: StudyFolder, run: Run, machine: Mapping[str, Value], command: Sequence[str]
) -> str:
    own = folder.run(run.name)
    given, log = own.path / GIVEN, own.path / LOG
    values = tomli_w.dumps(dict(run.values)).encode()
    if own.holds(run_folder.CONFIG) and (not given.is_file() or given.read_bytes() != values):
        return (
            f"{own.path} was begun under another configuration than the study has now; remove it, "
            "or give the study another name"
        )
    try:
        folder.write(f"runs/{run.name}/{GIVEN}", values)
    except RunError as error:
        return str(error)
    # `bfl run` closes where nobody names a closing; a study's run where its file says so.
    closing = run.configuration.values["closing"]
    place = {"output-dir": str(own.path.parent.absolute()), "name": run.name, "closing": closing}
    pairs = tomli_w.dumps({**machine, **place}).replace("\n", " ")
    arguments = [*command, "--run-config", str(given), "--run-config", pairs, "--resume"]
    with log.open("ab") as stream:
        begins = stream.tell()
        process = subprocess.Popen(arguments, stdout=stream, stderr=subprocess.STDOUT)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # A terminal interrupts both; whoever interrupts this process alone does not.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    if code == 0 and own.holds(run_folder.METRICS):
        return ""
    text = log.read_bytes()[begins:].decode(errors="replace")
    reasons = re.findall(r"^(?:refused|failed|error):? *\n? *.*", text, re.MULTILINE)
    cause = signal.Signals(-code).name if code < 0 else f"status {code}"
    return " ".join([f"the run's process has ended ({cause})", *reasons][-1].split())
