"""The command ``bfl close``: a closing round for a simulation that is over."""

from __future__ import annotations

import argparse
import json
import sys

from bfl.api import load
from bfl.commands.flower_simulation import parser, start
from bfl.commands.terminal import add_run_config_to, path_argument
from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.experiments.results.report import run_report
from bfl.experiments.results.run_folder import DATA, REPORT, RunFolder


def add_to(close: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl close``."""
    close.add_argument("folder", type=path_argument, metavar="RUN", help="the run's folder")
    close.add_argument(
        "--closing",
        required=True,
        metavar="WORDS",
        help="as in the key closing, such as bayesian-head+feature-density",
    )
    add_run_config_to(close, "settings of the closing, and of what evaluates the final network")
    close.add_argument(
        "--backend", default="auto", metavar="{auto,ray,serial}", help="as in bfl run"
    )
    close.set_defaults(run=close_run)


def close_run(given: argparse.Namespace) -> None:
    """Make the closing round, or go on with it, and evaluate the closed network."""
    run, folder = load(given.folder), RunFolder(given.folder)
    made = run.rounds[-1]["round"] if run.rounds else 0
    if not run.finished and made < run.configuration["rounds"]:
        raise ConfigurationError(
            f"{given.folder} is a run that is not over; end it with its closing by "
            f"bfl run --resume {given.folder} --run-config 'closing=\"{given.closing}\"'"
        )
    if "train" not in folder.read_json(DATA, {}):
        raise ConfigurationError(
            f"{given.folder} was made with clients that have data of their own; allowed: the "
            f'command that made it, with closing="{given.closing}" and resume=true, while its '
            "clients are there"
        )
    if not resolve(run.configuration).held_back_share:
        print(
            f"warning: clients of {given.folder} have trained on all their examples, those too by "
            "which this closing decides: its last layer will be too certain; make the run with "
            f'closing="{given.closing}" for one that is not',
            file=sys.stderr,
        )
    keys = {"closing": given.closing, "plugins": given.plugins}
    texts = [*given.run_config, *(f"{key}={json.dumps(v)}" for key, v in keys.items() if v)]
    options = [f"--resume={given.folder}", f"--backend={given.backend}"]
    reported = folder.holds(REPORT)
    start(parser().parse_args([*options, *(f"--run-config={text}" for text in texts)]))
    if reported:  # the old one is gone with the old results
        print(folder.write(REPORT, run_report(folder).encode()))
