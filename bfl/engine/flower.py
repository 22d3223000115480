"""The one door to Flower's moving parts: its simulation runtime and its app format.

Flower 1.26 was the last with a ``flower-simulation`` command. What it did is still there as
``flwr.simulation.run_simulation._run_simulation``, which also gives an app its run configuration;
the public ``run_simulation`` does not. All that this project takes from Flower outside its public
modules is taken here, so the next release is a change to this file.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Quiet, and nothing sent anywhere, unless the user has said otherwise.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

from bfl.configuration.sources import flatten, read_toml
from bfl.engine.health import declare_alive, declare_dead, obituary
from bfl.errors import ConfigurationError, RunError, nearest

Values = dict[str, str | int | float | bool]


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


def run_on_ray(
    app: FlowerApp,
    overrides: Mapping[str, Any],
    num_supernodes: int,
    backend_config: Mapping[str, Any],
    *,
    verbose: bool,
) -> None:
    """Run an app on Flower's Ray engine, in this process and without a SuperLink.

    Args:
        app: The app.
        overrides: Values that differ from the app's defaults.
        num_supernodes: The number of clients.
        backend_config: Flower's: ``client_resources``, ``init_args``, ``actor``. With RAY_ADDRESS
            in the environment, or ``address`` in ``init_args``, the run joins that cluster and
            leaves it running.
        verbose: Whether Flower and Ray log what they do.

    Raises:
        RunError: The engine failed.
        Exception: What the ServerApp raised.
    """
    import ray
    from flwr.simulation.run_simulation import _run_simulation
    from flwr.supercore.telemetry import EventType

    # Flower imports TensorFlow wherever it is installed; imported here first, it says nothing.
    import bfl.keras  # noqa: F401

    _prepare(app, verbose)
    config = _ray_config(backend_config, verbose)
    run = new_run(overrides)
    declare_alive()
    try:
        _start_ray(config["init_args"], verbose)
        _run_simulation(
            num_supernodes=num_supernodes,
            exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
            server_app_attr=app.server,
            client_app_attr=app.client,
            server_app_context=_context(run.run_id, app.run_config(overrides)),
            backend_config=config,
            app_dir=str(app.folder),
            is_app=True,
            run=run,
            verbose_logging=verbose,
        )
    except RuntimeError as error:
        if "Ending simulation" not in str(error):
            raise
        # The ServerApp waits in a thread of its own for replies that will not come.
        declare_dead(str(_root(error)))
        raise RunError(f"Flower's simulation engine failed: {_root(error)}") from error
    finally:
        ray.shutdown()


def _start_ray(init_args: Mapping[str, Any], verbose: bool) -> None:
    """Start Ray, or join the cluster that is named, before the ServerApp starts to wait for nodes.

    Flower would do it itself, in another thread than the one that waits.

    Raises:
        ConfigurationError: The cluster's resources are given, which only a new Ray can have.
        RunError: Ray cannot be started, or the cluster cannot be joined.
    """
    import ray

    address = init_args.get("address") or os.environ.get("RAY_ADDRESS")
    given = [name for name in ("num_cpus", "num_gpus") if name in init_args]
    if address and given:
        raise ConfigurationError(
            f"--backend-config: init_args has {given[0]}, but the run joins the Ray cluster at "
            f"{address}, which has its own; leave it out"
        )
    path = os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")]))
    try:
        _knock(str(address or ""))
        ray.init(
            **{"include_dashboard": False, "logging_level": logging.ERROR, **init_args},
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
    except Exception as error:
        what = f"join the Ray cluster at {address}" if address else "start Ray"
        raise RunError(f"cannot {what}: {_why_not(error)}") from error
    _watch_raylet()
    if not verbose:
        _silence_farewell()


def _why_not(error: BaseException) -> str:
    """Return why Ray cannot be reached: Ray may put a whole traceback into its message."""
    reason = (str(_root(error)).strip() or repr(error)).splitlines()[-1]
    if "AuthenticationError" in reason and "RAY_AUTH_MODE" not in os.environ:
        # `ray start` may have chosen to ask for a token; a driver that joins does not follow.
        return f"it asks for a token: set RAY_AUTH_MODE=token ({reason})"
    return reason


def _knock(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT: Ray itself tries for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


def _watch_raylet() -> None:
    """End this process with a message should the raylet that it has started die.

    Without its raylet Ray ends the process by itself some seconds later, from C++: no Python code
    gets to say what has happened. A raylet of a cluster that was joined is not ours to watch.
    """
    import ray
    from ray._private import worker

    node = worker._global_node
    started = getattr(node, "all_processes", {}).get("raylet") if node else None
    if not started:
        return
    raylet = started[0].process

    def watch() -> None:
        raylet.wait()
        if ray.is_initialized():  # ray.shutdown ends the raylet too, and says so first
            reason = f"Ray's raylet (process {raylet.pid}) has ended"
            print(f"failed: {obituary(reason)}", file=sys.stderr, flush=True)
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _silence_farewell() -> None:
    """Keep Ray from reporting as a failure that Flower ends its actors.

    Flower ends an actor by having it exit within a call; Ray, told to repeat calls of actors that
    die, prints that this one failed. There is no setting for it.
    """
    from ray._private import worker

    show = worker.print_to_stdstream

    def show_others(data: Any, *args: Any, **kwargs: Any) -> None:
        if not any("ClientAppActor.terminate failed" in line for line in data.get("lines", ())):
            show(data, *args, **kwargs)

    worker.print_to_stdstream = show_others


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
