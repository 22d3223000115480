"""The one door to Flower's moving parts: its simulation runtime and its app format.

Flower 1.26 was the last with a ``flower-simulation`` command. What it did is still there as
``flwr.simulation.run_simulation._run_simulation``, which also gives an app its run configuration;
the public ``run_simulation`` does not. All that this project takes from Flower outside its public
modules is taken here, so the next release is a change to this file.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

# Quiet, and nothing sent anywhere, unless the user has said otherwise.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# Flower's modules import TensorFlow before bfl.keras does, in actors: not Keras 3 as well.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

from bfl.configuration.sources import flatten, read_toml
from bfl.engine.health import declare_alive, declare_dead
from bfl.errors import ConfigurationError, RunError, nearest

Values = dict[str, str | int | float | bool]

HANDING_OUT = (0.005, 0.025)
"""Seconds between looks for messages to hand out: after the last ones, and after a long time."""


@dataclass(frozen=True)
class FlowerApp:
    """A Flower app as its pyproject.toml describes it.

    Attributes:
        folder: The folder that holds the pyproject.toml.
        server: The ServerApp as ``module:attribute``.
        client: The ClientApp likewise.
        defaults: The run configuration that it declares, flat.
    """

    folder: Path
    server: str
    client: str
    defaults: Values

    @classmethod
    def read(cls, folder: Path) -> FlowerApp:
        """Return the app in a folder.

        Raises:
            ConfigurationError: The folder holds no Flower app.
        """
        path = folder / "pyproject.toml"
        table = read_toml(path).get("tool", {}).get("flwr", {}).get("app", {})
        components = table.get("components", {})
        if not {"serverapp", "clientapp"} <= components.keys():
            raise ConfigurationError(
                f"--app {folder}: {path} has no [tool.flwr.app.components] with serverapp and "
                "clientapp"
            )
        return cls(
            folder=folder.resolve(),
            server=components["serverapp"],
            client=components["clientapp"],
            defaults=flatten(table.get("config", {})),
        )

    def run_config(self, overrides: Mapping[str, Any]) -> Values:
        """Return the run configuration: the app's defaults with some values overridden.

        Raises:
            ConfigurationError: A key is not among the app's.
        """
        for key in overrides:
            if key not in self.defaults:
                guess = nearest(key, self.defaults)
                hint = f"; did you mean '{guess}'?" if guess else ""
                raise ConfigurationError(
                    f"unknown key '{key}'{hint} (the app declares its keys in "
                    f"[tool.flwr.app.config] of {self.folder / 'pyproject.toml'})"
                )
        return {**self.defaults, **overrides}


class RayEngine:
    """Flower's Ray engine, started once for any number of runs; Flower itself starts one per run.

    Ray, the actors and what they have imported, built and traced stay from run to run. A context
    manager: leaving it ends the actors and Ray.

    Args:
        app: The app that is run.
        backend_config: Flower's: ``client_resources``, ``init_args``, ``actor``. With RAY_ADDRESS
            in the environment, or ``address`` in ``init_args``, the engine joins that cluster and
            leaves it running.
        most_clients: The greatest number of clients of a run: there are no more actors than that.
        verbose: Whether Flower and Ray log what they do.

    Raises:
        ConfigurationError: On entering: no actor fits on any node.
        RunError: On entering: Ray cannot be started, or the cluster cannot be joined.
    """

    def __init__(
        self,
        app: FlowerApp,
        backend_config: Mapping[str, Any],
        *,
        most_clients: int,
        verbose: bool = False,
    ) -> None:
        self.app = app
        self.verbose = verbose
        self._most_clients = most_clients
        self._config = _ray_config(backend_config, verbose)
        self._pool: Any = None

    def __enter__(self) -> RayEngine:
        from bfl.engine import ray_cluster

        _prepare(self.app, self.verbose)
        ray_cluster.connect(self._config["init_args"])
        try:
            ray_cluster.check_fit(self._config["client_resources"])
            self._pool = self._start_actors()
        except BaseException:
            ray_cluster.disconnect()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        from bfl.engine import ray_cluster

        ray_cluster.end(self._pool.pool if self._pool else [])
        ray_cluster.disconnect()

    @property
    def actors(self) -> int:
        """The number of actors, each of which runs one client at a time."""
        return int(self._pool.num_actors)

    def _start_actors(self) -> Any:
        """Return a pool of actors that import what clients need while the server starts."""
        with _without_tensorflow():
            from flwr.simulation.ray_transport.ray_actor import BasicActorPool, ClientAppActor

        pool = BasicActorPool(
            actor_type=ClientAppActor,
            client_resources=self._config["client_resources"],
            actor_kwargs={"on_actor_init_fn": partial(_warm_up, self.app.client.partition(":")[0])},
        )
        pool.add_actors_to_pool(min(pool.actors_capacity, self._most_clients))
        return pool

    def run(self, overrides: Mapping[str, Any], num_supernodes: int) -> None:
        """Run the app.

        Args:
            overrides: Values that differ from the app's defaults.
            num_supernodes: The number of clients.

        Raises:
            RunError: The engine failed.
            Exception: What the ServerApp raised.
        """
        with _without_tensorflow():
            from flwr.simulation.run_simulation import _run_simulation
        from flwr.supercore.telemetry import EventType

        run = new_run(overrides)
        declare_alive()
        try:
            with _kept(self._pool), _handed_out_at_once():
                _run_simulation(
                    num_supernodes=num_supernodes,
                    exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
                    server_app_attr=self.app.server,
                    client_app_attr=self.app.client,
                    server_app_context=_context(run.run_id, self.app.run_config(overrides)),
                    backend_config=dict(self._config),
                    app_dir=str(self.app.folder),
                    is_app=True,
                    run=run,
                    verbose_logging=self.verbose,
                )
        except RuntimeError as error:
            if "Ending simulation" not in str(error):
                raise
            # The ServerApp waits in a thread of its own for replies that will not come.
            declare_dead(str(_root(error)))
            raise RunError(f"Flower's simulation engine failed: {_root(error)}") from error


def _warm_up(client_module: str) -> None:
    """Import, in an actor that has just started, what its first client would wait for."""
    # What cannot be imported is reported, with the client, by the task that needs it.
    with suppress(Exception):
        importlib.import_module("bfl.keras")
        importlib.import_module(client_module)


@contextmanager
def _kept(pool: Any) -> Iterator[None]:
    """Have Flower run its clients on a pool of actors that outlives the run."""
    from flwr.server.superlink.fleet.vce.backend import raybackend

    class KeptRayBackend(raybackend.RayBackend):
        """Flower's Ray backend on actors that are there already and stay."""

        def build(self, app_fn: Any) -> None:
            self.pool, self.app_fn = pool, app_fn

        def terminate(self) -> None:
            """Leave the actors to the engine."""

    before = raybackend.RayBackend
    raybackend.RayBackend = KeptRayBackend  # type: ignore[misc]
    try:
        yield
    finally:
        raybackend.RayBackend = before  # type: ignore[misc]


@contextmanager
def _without_tensorflow() -> Iterator[None]:
    """Keep Flower's simulation modules from importing TensorFlow, which takes seconds.

    They do it wherever it is installed, for a setting of GPUs that Flower's Ray backend then drops.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["tensorflow"]


def run_serially(
    app: FlowerApp,
    overrides: Mapping[str, Any],
    num_supernodes: int,
    backend_config: Mapping[str, Any],
) -> None:
    """Run an app in this process, one client after the other, without Ray.

    The process computes with as many CPUs as one Ray actor would, so the results are the same.

    Raises:
        Exception: What the ServerApp raised.
    """
    from flwr.clientapp.client_app import LoadClientAppError
    from flwr.serverapp.server_app import LoadServerAppError
    from flwr.supercore.object_ref import load_app

    from bfl.engine.serial import SerialGrid

    _prepare(app, verbose=False)
    os.environ["BFL_CPUS"] = str(_client_resources(backend_config)["num_cpus"])
    values = app.run_config(overrides)
    run = new_run(overrides)
    client_app: Any = load_app(app.client, LoadClientAppError, str(app.folder))
    server_app: Any = load_app(app.server, LoadServerAppError, str(app.folder))
    grid = SerialGrid(client_app, num_supernodes, run, values)
    server_app(grid=grid, context=_context(run.run_id, values))


@contextmanager
def _handed_out_at_once() -> Iterator[None]:
    """Have Flower's engine hand out a round's messages in time proportional to their number.

    Its own loop asks for the messages of one node after the other, and for each goes through all
    messages that have not been answered yet: a hundred times the work with ten times the clients,
    in the process, and under the lock, through which everything else has to go. From some hundred
    clients on the actors wait for it. Here all that are new are handed out together.
    """
    from flwr.server.superlink.fleet.vce import vce_api

    before = vce_api.add_messages_to_queue
    vce_api.add_messages_to_queue = _hand_out
    try:
        yield
    finally:
        vce_api.add_messages_to_queue = before


def _hand_out(state: Any, queue: Any, nodes_mapping: Mapping[int, int], f_stop: Any) -> None:
    """Put new messages into the queue of the engine's workers until the run stops.

    Args:
        state: Flower's in-memory state.
        queue: What the workers take messages from.
        nodes_mapping: Partition id by node id.
        f_stop: Set when the run stops.
    """
    shortest, longest = HANDING_OUT
    pause = shortest
    while not f_stop.is_set():
        new = _new_messages(state)
        for message in new:
            queue.put(message)
        pause = shortest if new else min(pause * 1.02, longest)
        f_stop.wait(pause)


def _new_messages(state: Any) -> list[Any]:
    """Return the messages that have not been handed out, and mark them as Flower does."""
    from flwr.supercore.date import now

    def is_new(message: Any) -> bool:
        return not message.metadata.delivered_at

    with state.lock:
        # All are handed out at once, so the new ones are at the end.
        new = list(takewhile(is_new, reversed(state.message_ins_store.values())))[::-1]
        for message in new:
            message.metadata.delivered_at = now().isoformat()
    return new


def is_simulation(grid: Any) -> bool:
    """Return whether the nodes of a grid are simulated, by Flower's engine or by the serial one."""
    serial = sys.modules.get("bfl.engine.serial")
    return _is_in_memory(grid) or (serial is not None and isinstance(grid, serial.SerialGrid))


def _is_in_memory(grid: Any) -> bool:
    flower = sys.modules.get("flwr.superlink.grid.inmemory_grid")
    return flower is not None and isinstance(grid, flower.InMemoryGrid)


def poll_interval(grid: Any) -> float:
    """Return how many seconds to wait between looks for replies.

    Flower itself waits for 0.1 s where the replies lie in a dictionary of this process, so that of
    a round of ten small clients half would be waiting.
    """
    if _is_in_memory(grid):
        return 0.005
    return float(getattr(grid, "pull_interval", 0.05))


def new_run(overrides: Mapping[str, Any]) -> Any:
    """Return Flower's description of a new run, and make it this process's run.

    Flower's messages take their sender and run from what is set here.
    """
    from flwr.common.constant import RUN_ID_NUM_BYTES, SUPERLINK_NODE_ID, TASK_ID_NUM_BYTES
    from flwr.server.superlink.linkstate.utils import generate_rand_int_from_bytes
    from flwr.supercore.constant import NOOP_FEDERATION_ID
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity

    run = Run.create_empty(run_id=generate_rand_int_from_bytes(RUN_ID_NUM_BYTES))
    run.primary_task_id = generate_rand_int_from_bytes(TASK_ID_NUM_BYTES)
    run.federation_id = NOOP_FEDERATION_ID
    run.override_config = dict(overrides)
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = run.run_id
    TaskIdentity.node_id = SUPERLINK_NODE_ID
    return run


def _prepare(app: FlowerApp, verbose: bool) -> None:
    """Make the app's packages importable here, hence in the actors, and set Flower's log level."""
    folder = str(app.folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # Failures are reported by the strategy, with the client and the round, and once.
    level = logging.DEBUG if verbose else logging.CRITICAL
    for handler in logging.getLogger("flwr").handlers:
        handler.setLevel(level)
    logging.getLogger("ray").setLevel(level)


def _context(run_id: int, values: Values) -> Any:
    from flwr.app import Context, RecordDict

    return Context(
        run_id=run_id, node_id=0, node_config={}, state=RecordDict(), run_config=dict(values)
    )


def _client_resources(backend_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an actor gets: one CPU unless said otherwise."""
    return {"num_cpus": 1, "num_gpus": 0.0, **backend_config.get("client_resources", {})}


def _ray_config(given: Mapping[str, Any], verbose: bool) -> dict[str, Any]:
    """Return Flower's backend configuration: what is given, and our defaults."""
    resources = _client_resources(given)
    # Flower puts a dead actor back into its pool and never replaces it: have Ray restart it.
    resources.setdefault("max_restarts", -1)
    resources.setdefault("max_task_retries", 1)
    init = {"log_to_driver": verbose, **given.get("init_args", {})}
    return {**given, "client_resources": resources, "init_args": init}


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
