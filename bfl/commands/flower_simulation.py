"""The commands that make runs: ``flower-simulation``, as in Flower 1.26, and ``bfl close``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bfl.commands.terminal import (
    add_plugins_to,
    add_run_config_to,
    exits_with_status,
    path_argument,
)
from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config, with_own_plugins
from bfl.engine.flower.app import OWN_SERVER, FlowerApp, Values
from bfl.engine.run import EngineRun
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import DATA, METRICS, REPORT, RunFolder
from bfl.experiments.run.baselines import baselines_of, make_runs
from bfl.experiments.run.simulation import (
    DEFAULT_SUPERNODES,
    agree_on_clients,
    check,
    chosen_backend,
    clients_in_the_data,
    read_backend_config,
    with_closing,
)
from bfl.files import given_path
from bfl.plugins import load_plugins, named_plugins
from bfl.printing import doing

DESCRIPTION = "Simulate a Flower app: its ServerApp and as many clients as asked for."


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    options = argparse.ArgumentParser(prog="flower-simulation", description=DESCRIPTION)
    add_to(options, "ray")
    add_plugins_to(options)
    return options


def add_to(options: argparse.ArgumentParser, backend: str = "auto") -> None:
    """Add the options of ``flower-simulation``, which ``bfl run`` has as well."""
    text = "folder with the app's pyproject.toml (default: . if it is here, else bfl's own app)"
    options.add_argument("--app", type=path_argument, help=text)
    text = "number of clients (default: the key clients, else a column's values of "
    text += f"partition='column:NAME', else {DEFAULT_SUPERNODES})"
    options.add_argument("--num-supernodes", "--clients", type=int, metavar="K", help=text)
    text = "ray: Flower's engine, one actor per share of the machine; serial: in this process, one "
    text += "client after the other; auto: serial for a run that is over before Ray has started "
    text += f"(default: {backend})"
    options.add_argument("--backend", default=backend, metavar="{auto,ray,serial}", help=text)
    text = """for instance '{"client_resources": {"num_cpus": 1, "num_gpus": 0.1}}'; also """
    text += "init_args and actor, as in Flower"
    options.add_argument("--backend-config", default="{}", metavar="JSON", help=text)
    text = """key=value pairs, 'strategy="conflation" rounds=3', or a TOML file; repeatable, and """
    add_run_config_to(options, f"{text}later ones win")
    options.add_argument("--name", help="name of the run's folder, whatever a file says")
    text = "remove the run that has this name before"
    options.add_argument("--overwrite", action="store_true", help=text)
    text = "go on with the run in FOLDER, from its last checkpoint and with its configuration; "
    text += "without FOLDER, with the run that the keys output-dir and name say; with more rounds "
    text += "by --run-config rounds=N"
    options.add_argument("--resume", nargs="?", const="", metavar="FOLDER", help=text)
    text = "make beside it each client's own model, and the one of all data in one place"
    options.add_argument("--baselines", default="", metavar="local+central", help=text)
    text = "show what Flower and Ray log as well"
    options.add_argument("--verbose", action="store_true", help=text)
    options.set_defaults(run=start)


@exits_with_status
def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    given = parser().parse_args(arguments)
    load_plugins(given.plugins)
    start(given)


def start(given: argparse.Namespace) -> None:
    """Make the run that the command's options describe, with advice should it end early."""
    run = EngineRun(verbose=given.verbose)
    run.advice = "nothing has been saved yet; the same command begins the run again"
    with run.in_progress():
        simulate(given, run)


def simulate(given: argparse.Namespace, run: EngineRun) -> None:
    """Make the run that the command's options describe."""
    doing("configuration and data are read")
    backend_config = read_backend_config(given.backend_config)
    app = FlowerApp.own()
    if given.app is not None or Path("pyproject.toml").is_file():
        app = FlowerApp.read(given.app or Path())
    overrides = read_run_config(given.run_config)
    if given.name is not None:
        overrides["name"] = given.name
    if given.resume is not None:
        overrides = resumed(given.resume, overrides, renamed=given.name is not None)
    if (baselines := baselines_of(given.baselines)) and not overrides.get("name"):
        raise ConfigurationError(f"--baselines {given.baselines} needs a --name, as theirs follow")
    own = app.server == OWN_SERVER
    count, overrides = agree_on_clients(
        given.num_supernodes,
        overrides,
        app.defaults if own else {},
        lambda: clients_in_the_data(app, overrides) if own else 0,
    )
    backend = chosen_backend(given.backend, app, overrides, backend_config)
    if own:
        overrides = with_closing(app, overrides)
        check(app, overrides, count, backend=backend, overwrite=given.overwrite)
    make_runs(
        app,
        overrides,
        count,
        run,
        backend=backend,
        backend_config=backend_config,
        engine_log=given.verbose,
        baselines=baselines,
        anew=given.overwrite,
    )


def resumed(folder: str, overrides: Values, *, renamed: bool = False) -> Values:
    """Return the run configuration that goes on with a run.

    Args:
        folder: The run's folder, whose configuration is taken; empty: the one of the keys.
        renamed: Whether another name is given, which is refused.
    """
    if not folder:
        return {**overrides, "resume": True}
    if renamed:
        raise ConfigurationError(
            f"--resume {folder} goes on in that folder; allowed: no --name with it (to repeat the "
            f"run under another name: --run-config {Path(folder) / 'config.toml'} --name NAME)"
        )
    run = RunFolder.at(given_path(folder, "--resume"))
    path = run.path.resolve()
    saved = with_own_plugins(run.config(), named_plugins(overrides), path / "config.toml")
    where: Values = {"output-dir": str(path.parent), "name": path.name, "resume": True}
    return {**saved, **overrides, **where}


def add_close_to(close: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl close``."""
    close.add_argument("folder", type=path_argument, metavar="RUN", help="the run's folder")
    text = "as in the key closing, such as bayesian-head+feature-density"
    close.add_argument("--closing", required=True, metavar="WORDS", help=text)
    add_run_config_to(close, "settings of the closing, and of what evaluates the final network")
    text = "as in bfl run"
    close.add_argument("--backend", default="auto", metavar="{auto,ray,serial}", help=text)
    close.set_defaults(run=close_run)


def close_run(given: argparse.Namespace) -> None:
    """Make the closing round, or go on with it, and evaluate the closed network."""
    folder = RunFolder.at(given.folder)
    made, configuration = [0, *(each["round"] for each in folder.rounds())][-1], folder.config()
    if not folder.holds(METRICS) and made < configuration["rounds"]:
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
    plugins = given.plugins or named_plugins(read_run_config(given.run_config))
    configuration = with_own_plugins(configuration, plugins, given.folder / "config.toml")
    if not resolve(configuration).held_back_share:
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
        from bfl.experiments.results.report import run_report

        print(folder.write(REPORT, run_report(folder).encode()))


if __name__ == "__main__":
    sys.exit(main())
