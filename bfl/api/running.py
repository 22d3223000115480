"""Runs and studies from Python, by the keys of the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bfl.api.arrays import Data, naming_data, store
from bfl.api.network import running_alone
from bfl.api.result import Result, load
from bfl.configuration import resolve
from bfl.configuration.component_slots import SLOTS
from bfl.configuration.sources import read_config_file
from bfl.engine.flower.app import FlowerApp
from bfl.engine.run import EngineRun, OnRound
from bfl.errors import ConfigurationError, unknown_name
from bfl.experiments.run import simulation
from bfl.experiments.run.baselines import baselines_of, make_runs
from bfl.experiments.studies.results import OUTPUT, open_study
from bfl.experiments.studies.table import StudyTable, study_table
from bfl.files import given_path
from bfl.plugins import load_plugins, named_plugins
from bfl.printing import print_anywhere, say
from bfl.registry import kebab

JOINED_BY_PLUS = {"ood-dataset", "corruptions", *(kind.key for kind in SLOTS if kind.chain)}
"""Keys of several words with a plus between them; others have commas."""


def _nothing(*_: object, **__: object) -> None:
    pass


def run(
    configuration: str | os.PathLike[str] | None = None,
    /,
    *,
    data: Data | None = None,
    backend: str = "auto",
    backend_config: Mapping[str, Any] | None = None,
    on_round: OnRound = _nothing,
    baselines: str = "",
    overwrite: bool = False,
    verbose: bool = True,
    **keys: Any,
) -> Result:
    """Make a run and return its results.

    Args:
        configuration: Keys to begin with: a TOML file, such as those in ``configs/`` and every
            run's ``config.toml``; ``keys`` win over it.
        data: Data in memory, in place of the key ``dataset``: ``(x, y)`` or
            ``(x_train, y_train, x_test, y_test)`` of images or of rows, or a data frame with a
            target column. They are written below ``output_dir``.
        backend: ``"ray"``, Flower's engine on this machine or on a cluster; ``"serial"``, in this
            process; or ``"auto"``, ``"serial"`` for a run that is over before Ray has started. The
            posterior is the same.
        backend_config: Flower's, for instance ``{"client_resources": {"num_gpus": 0.1}}``.
        on_round: Called on the server after each round with its number, from 1; its metrics, as in
            ``Result.rounds``; and its posterior, vectors of means (P,), variances (P,) and point
            parameters (Q,), which it must not change. What it raises ends the run.
        baselines: ``"local+central"`` makes beside it each client's own model, and the one of all
            data in one place: ``Result.baselines``.
        overwrite: Whether a run that has the same ``name`` is removed before.
        verbose: Whether the terminal shows the run; False: nothing.
        keys: The keys of a configuration with underscores for hyphens: ``local_epochs=1`` (``bfl
            keys`` lists them all); those not given have their defaults. A key of several words
            takes a list: ``columns_left_out=["site"]``.

    Example:
        ``bfl.run(strategy="conflation", clients=3, rounds=5).metrics["accuracy"]``
    """
    print_anywhere()
    if backend not in simulation.BACKENDS:
        raise ConfigurationError(unknown_name("backend", str(backend), simulation.BACKENDS))
    try:
        engine_config = simulation.read_backend_config(json.dumps(dict(backend_config or {})))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"backend_config is {backend_config!r}: {error}") from error
    chosen = baselines_of(baselines)  # before an earlier run is removed
    app = FlowerApp.own()
    changes = _plain(keys)
    given = dict(changes)
    if configuration is not None:
        path = given_path(configuration, "configuration")
        given = {**read_config_file(path, plugins=named_plugins(changes)), **changes}
    if data is not None:
        if "dataset" in given:
            raise ConfigurationError(
                f"data and dataset ({given['dataset']!r}) are both given; allowed: one of them"
            )
        # Other keys are checked before anything is written.
        settings = resolve(given, check_data=False).keys
        given["dataset"] = store(data, settings.output_dir, settings.test_share)
    with naming_data("" if data is None else given["dataset"]):
        count, overrides = simulation.agree_on_clients(
            None, given, app.defaults, lambda: simulation.clients_in_the_data(app, given)
        )
        backend = simulation.chosen_backend(backend, app, overrides, engine_config)
        told = say if verbose else _nothing
        overrides = simulation.with_closing(app, overrides, told)
        resolved = resolve(app.run_config(overrides))
        name = resolved.keys.name or simulation.made_up_name(resolved)
        # Absolute: the process may change its folder meanwhile, and the run may not move.
        output_dir = Path(resolved.keys.output_dir).absolute()
        overrides = {**overrides, "name": name, "output-dir": str(output_dir)}
        with running_alone():
            simulation.check(app, overrides, count, backend=backend, overwrite=overwrite, say=told)
            engine_run = EngineRun(None if verbose else Console(quiet=True), on_round=on_round)
            make_runs(
                app,
                overrides,
                count,
                engine_run,
                backend=backend,
                backend_config=engine_config,
                baselines=chosen,
                anew=overwrite,
            )
    return load(output_dir / name)


def _plain(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys in the configuration's spelling, and values in types that it can hold."""
    plain = {kebab(key): value for key, value in keys.items()}
    for key, value in plain.items():
        if isinstance(value, os.PathLike):
            plain[key] = os.fspath(value)
        elif isinstance(value, list | tuple) and value:
            plain[key] = ("+" if key in JOINED_BY_PLUS else ", ").join(map(str, value))
        elif isinstance(value, np.generic):
            plain[key] = value.item()
    return plain


def study(
    path: str | os.PathLike[str],
    *,
    only: Sequence[str] = (),
    output: str | os.PathLike[str] = OUTPUT,
    anew: bool = False,
    plugins: str = "",
) -> StudyTable:
    """Return a study's results as far as there are any; ``bfl study`` makes the missing ones.

    Args:
        path: The study's folder, its TOML file, or the name of one of bfl's, such as
            "fischer2024/table2.toml".
        only: The runs whose name contains or matches one of these; none: all.
        output: The folder that has the study's folder, for a file.
        anew: Whether the results that its checkout has in ``docs/results`` are left out.
        plugins: The plugins that the study is from, which may run their code here, as in the key
            ``plugins``.

    Returns:
        The table: ``lines`` has a row a line; ``results`` has ``frame``, a row a run, and
        ``curves``.
    """
    load_plugins(plugins)
    return study_table(open_study(Path(path), output=Path(output), only=only, anew=anew))
