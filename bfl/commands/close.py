"""The command ``bfl close``: the closing round of a simulated run that is over."""

from __future__ import annotations

import argparse
import json

from bfl.api import load
from bfl.api.result import POSTERIORS
from bfl.commands.terminal import add_run_config_to, path_argument
from bfl.errors import ConfigurationError


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of ``bfl``."""
    close = commands.add_parser("close", help="make the closing round of a simulation that is over")
    close.add_argument("folder", type=path_argument, metavar="RUN", help="the run's folder")
    close.add_argument(
        "--closing",
        required=True,
        metavar="WORDS",
        help="as in the key closing, such as bayesian-head+feature-density",
    )
    close.add_argument(
        "--posterior",
        choices=POSTERIORS,
        help="as in the key closing-posterior: whose network is closed (default: as in the run)",
    )
    add_run_config_to(close, "settings of the closing, and of what evaluates the final network")
    close.add_argument("--backend", default="ray", metavar="{ray,serial}", help="as in simulations")
    close.set_defaults(run=close_run)


def close_run(given: argparse.Namespace) -> None:
    """Make the closing round, and evaluate the closed network: no round is made again.

    Raises:
        ConfigurationError: The run is not over.
    """
    from bfl.commands.flower_simulation import parser, start

    if not load(given.folder).finished:
        raise ConfigurationError(
            f"{given.folder} is a run that is not over; end it with its closing by "
            f"flower-simulation --resume {given.folder} --run-config 'closing=\"{given.closing}\"'"
        )
    asked = {"closing-posterior": given.posterior, "plugins": given.plugins}
    pairs = {"closing": given.closing, **{key: value for key, value in asked.items() if value}}
    texts = [*given.run_config, *(f"{key}={json.dumps(value)}" for key, value in pairs.items())]
    options = [f"--resume={given.folder}", f"--backend={given.backend}"]
    start(parser().parse_args([*options, *(f"--run-config={text}" for text in texts)]))
