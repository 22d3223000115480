"""Name, backend and number of clients of a simulation, and checks before its start."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from bfl.configuration import Configuration, refuse_unread, resolve
from bfl.configuration.settings import UNSET, named_strategy
from bfl.data.datasets import Dataset, cached_dataset
from bfl.data.datasets.server_data import HELD_BACK
from bfl.data.datasets.subset import train_positions
from bfl.data.partitions.base import Partition
from bfl.engine.flower.app import FlowerApp, Values
from bfl.errors import ConfigurationError, unknown_name
from bfl.experiments.results.run_folder import CONFIG, RunFolder, locked
from bfl.experiments.run.resume import check_output
from bfl.printing import say
from bfl.texts import from_json


def made_up_name(configuration: Configuration) -> str:
    """Return a readable name that is free in ``output-dir``: the time, then the main choices."""
    keys = configuration.keys
    parts = (
        datetime.now().strftime("%Y%m%d-%H%M%S"),
        keys.dataset.split(":")[0],
        configuration.inference.name,
        configuration.pooling.name,
        configuration.weighting.name,
        configuration.partition.name,
        f"seed{keys.seed}",
    )
    name, number = "-".join(parts), 1
    free = name
    while (Path(keys.output_dir) / free).exists():
        number += 1
        free = f"{name}-{number}"
    return free


DEFAULT_SUPERNODES = 10
DEFAULT_CLOSING = "bayesian-head+feature-density"
DEFAULT_CLOSING_OF_NUMBERS = "gaussian-head+feature-density"
BACKENDS = ("auto", "ray", "serial")

WORTH_RAY, ROWS_ARE_CHEAPER = 10_000_000, 20
"""Numbers in all examples of all epochs from which on a run starts Ray, whose processes take some
twenty seconds to import TensorFlow and to trace the network; and by how much fewer a row's cost."""


def chosen_backend(
    backend: str, app: FlowerApp, overrides: Mapping[str, Any], backend_config: Mapping[str, Any]
) -> str:
    """Return the backend that ``auto`` is: ``serial`` where it is over before Ray has started."""
    if backend not in BACKENDS:
        raise ConfigurationError(unknown_name("--backend", backend, BACKENDS))
    if backend != "auto":
        return backend
    if backend_config or app.client != FlowerApp.own().client:
        return "ray"
    configuration = resolve(app.run_config(overrides))
    keys = configuration.keys
    # A server that learns computes with its own number of threads, a client with one.
    if configuration.server_network_decides and keys.server_threads != 1:
        return "ray"
    dataset = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
    examples = len(train_positions(dataset, keys.train_examples))
    numbers = keys.rounds * keys.local_epochs * examples * math.prod(dataset.image_shape)
    cheaper = ROWS_ARE_CHEAPER if dataset.encoding else 1
    return "ray" if numbers > WORTH_RAY * cheaper else "serial"


def read_backend_config(text: str) -> dict[str, Any]:
    """Return the backend's configuration from a JSON object with Flower's keys."""
    try:
        config = from_json(text)
    except ValueError as error:
        raise ConfigurationError(f"--backend-config: not JSON ({error}): {text[:200]}") from error
    if not isinstance(config, dict):
        raise ConfigurationError(f"--backend-config: expected a JSON object, not {text}")
    known = ("init_args", "client_resources", "actor")
    for key, value in config.items():
        if key not in known:
            raise ConfigurationError(f"--backend-config: {unknown_name('key', key, known)}")
        if not isinstance(value, dict):
            raise ConfigurationError(f"--backend-config: {key} is {value!r}; allowed: an object")
    return config


def agree_on_clients(
    num_supernodes: int | None,
    overrides: Mapping[str, Any],
    defaults: Mapping[str, Any],
    in_the_data: Callable[[], int] = lambda: 0,
) -> tuple[int, Values]:
    """Return the number of clients, and the run configuration with it.

    ``--num-supernodes`` and the key ``clients`` are one number; if neither is given, it is that
    ``in_the_data``, or ``DEFAULT_SUPERNODES``.
    """
    merged = dict(overrides)
    configured = overrides.get("clients", defaults.get("clients", 0))
    configured = 0 if configured == UNSET else configured
    if num_supernodes is not None and num_supernodes < 1:
        raise ConfigurationError(f"--num-supernodes is {num_supernodes}; allowed: at least 1")
    if num_supernodes and configured and num_supernodes != configured:
        raise ConfigurationError(
            f"--num-supernodes is {num_supernodes} and clients is {configured}: they are one "
            "number; give one of them, or the same"
        )
    count = num_supernodes or configured or in_the_data() or DEFAULT_SUPERNODES
    if "clients" in defaults:
        merged["clients"] = count
    return count, merged


def clients_in_the_data(app: FlowerApp, overrides: Mapping[str, Any]) -> int:
    """Return the number of clients that a partition finds in the data; 0: it does not name any."""
    configuration = resolve(app.run_config(overrides))
    if not names_clients(configuration):
        return 0
    keys = configuration.keys
    dataset = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
    return len(configuration.partition.names(dataset.train_columns))


def names_clients(configuration: Configuration) -> bool:
    """Return whether a configuration's partition finds the clients in the data."""
    return type(configuration.partition).names is not Partition.names


def with_closing(
    app: FlowerApp, overrides: Mapping[str, Any], say: Callable[..., None] = say
) -> Values:
    """Return the run configuration with the default closing, if nobody names one.

    Where it cannot be there is none, and a line says why. A run that is resumed keeps its own.
    Studies, and apps with clients of their own, close where they say so.
    """
    if app.client != FlowerApp.own().client:
        return dict(overrides)
    closed = {**overrides, "closing": DEFAULT_CLOSING}
    try:
        configuration = resolve(app.run_config(overrides), check_data=False)
    except ConfigurationError:
        return dict(overrides)  # check() refuses it
    keys = configuration.keys
    if keys.task == "regression":
        closed["closing"] = DEFAULT_CLOSING_OF_NUMBERS
    if "closing" in {**named_strategy(keys.strategy).values, **configuration.given}:
        return dict(overrides)
    if keys.resume and keys.name:
        folder = RunFolder.named(keys.output_dir, keys.name)
        if folder.holds(CONFIG):
            return {**overrides, "closing": folder.config().get("closing", "none")}
    problem = ""
    network = (configuration.architecture, configuration.inference)
    if others := [part for part in network if not type(part).__module__.startswith("bfl.")]:
        problem = f"'{others[0].name}' is a plugin, whose network may not end with a dense layer"
    if configuration.example_privacy.private:
        problem = "its sums have no noise (example-privacy)"
    try:
        resolve(app.run_config(closed), check_data=False)
    except ConfigurationError as error:
        problem = str(error).partition("; allowed")[0]
    if problem:
        say(f"no closing round, which a run has by default: {problem}")
    return dict(overrides) if problem else closed


def check(
    app: FlowerApp,
    overrides: Mapping[str, Any],
    clients: int,
    *,
    backend: str,
    overwrite: bool = False,
    say: Callable[..., None] = say,
) -> list[str]:
    """Check a run before the engine starts, and remove one of the same name with ``overwrite``.

    A line announces the run at once, as the first imports take seconds. Returns what the run warns
    of before its first round.
    """
    configuration = resolve(app.run_config(overrides))
    if not overwrite:
        check_output(configuration)
    if not configuration.keys.resume:
        refuse_unread(configuration, overrides)
    where = "this process" if backend == "serial" else "Ray actors"
    say(f"run of {clients} clients in {where}: {configuration.title}")
    # A run to be overwritten is checked without its name, which is still taken.
    nameless = resolve(app.run_config({**overrides, "name": ""})) if overwrite else configuration
    warnings: list[str] = app.load(app.server).check_before_start(nameless, clients)
    if overwrite:
        remove_run(configuration)
        check_output(configuration)
    return warnings


def remove_run(configuration: Configuration) -> None:
    """Remove the run with the configuration's name, if it exists; no other folder."""
    keys = configuration.keys
    if keys.resume or not keys.name:
        raise ConfigurationError(
            "overwrite needs the run's name (--name or the key name), and excludes resume"
        )
    folder = RunFolder.named(keys.output_dir, keys.name)
    if folder.holds(CONFIG):
        with locked(folder.path):
            shutil.rmtree(folder.path)


def check_table(configuration: Configuration, dataset: Dataset) -> None:
    """Refuse what is made for images, where the data are the rows of a table."""
    if not dataset.encoding:
        return
    keys, values = configuration.keys, configuration.values
    allowed = {
        "augmentation": "none",
        "student-augmentation": "none",
        "image-size": 0,
        "image-channels": 0,
        "corruptions": "none",
        "ood-dataset": "",
    }
    problems = {k: repr(v) for k, v in allowed.items() if values.get(k, v) not in (v, 0)}
    if keys.server_data not in ("", HELD_BACK):
        problems["server-data"] = f"'' or '{HELD_BACK}'"
    if configuration.architecture.convolutional:
        problems["model"] = "a network of dense layers, such as 'mlp'"
    if problems:
        raise ConfigurationError(
            f"dataset '{keys.dataset}' has rows of a table, and "
            + "; ".join(
                f"{key} is {values[key]!r}, which is for images; allowed: {remedy}"
                for key, remedy in problems.items()
            )
        )
