"""The one door to Ray: starting it or joining a cluster, what fits on it, and noticing its end."""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bfl.engine.flower import exchanged
from bfl.engine.processes import environment_with
from bfl.errors import ConfigurationError, RunError

NUMBERS = {"num_cpus": "CPU", "num_gpus": "GPU"}
"""Resources that an actor may ask for, with Ray's names for them on a node."""

OWN = "local"
"""Ray's address for a Ray of your own, also where another one is running already."""

LETTING_GO = 0.3
"""Seconds for threads that wait for actors to stop, once the raylet has died."""

TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""Variables by which a user gives a token: whoever has it runs code on the nodes of a Ray."""


def connect(init_args: Mapping[str, Any], died: Callable[[str], None]) -> None:
    """Start Ray, with a token of its own and on loopback, or join the cluster that is named.

    Args:
        init_args: Arguments of ``ray.init``; ``address``, or RAY_ADDRESS in the environment, names
            a cluster.
        died: Called, in another thread, with the reason if Ray ends by itself.

    Raises:
        ConfigurationError: ``init_args`` has resources for a cluster that has its own, or the
            temporary folder's path is too long for Ray's sockets.
        RunError: Ray cannot be started, or the cluster cannot be joined.
    """
    import ray
    from ray._private import ray_constants

    address = init_args.get("address") or os.environ.get("RAY_ADDRESS") or OWN
    joins = address != OWN
    resources = [name for name in NUMBERS if name in init_args]
    if joins and resources:
        raise ConfigurationError(
            f"--backend-config: init_args has {resources[0]}, but the run joins the Ray cluster at "
            f"{address}, which has its own; leave it out"
        )
    defaults = {"include_dashboard": False, "logging_level": logging.ERROR}
    arguments = {**defaults, **init_args, "address": address}
    path = os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")]))
    try:
        own = _user_token() if joins else {"PYTHONPATH": path, **own_environment()}
        # Ray reads the variables while it starts, and its processes inherit them.
        with environment_with(own), _own_signal_handlers():
            _read_settings()
            if joins:
                _check_reachable(address)
                kept = {k: v for k, v in os.environ.items() if k == "TF_USE_LEGACY_KERAS"}
                ray.init(**arguments, runtime_env={"env_vars": {**kept, "PYTHONPATH": path}})
            else:
                # Without a runtime environment actors can be the processes that Ray has started
                # beforehand. It has read the first of ``own_environment`` when it was imported.
                with exchanged(ray_constants, "ENABLE_RAY_CLUSTER", False):
                    ray.init(**arguments)
    except Exception as error:
        what = f"join the Ray cluster at {address}" if joins else "start Ray"
        raise _refusal(what, error, init_args) from error
    _watch_raylet(died)


def disconnect() -> None:
    """Leave the cluster, or end the Ray that was started."""
    import ray

    ray.shutdown()
    _read_settings()


def root_cause(error: BaseException) -> BaseException:
    """Return the error by which another one was caused at first."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _refusal(what: str, error: Exception, init_args: Mapping[str, Any]) -> Exception:
    root = root_cause(error)
    # Ray may put a whole traceback into its message.
    reason = (str(root).strip() or repr(root)).splitlines()[-1]
    if "AF_UNIX path length" in str(error):
        variable = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
        named = "_temp_dir of init_args" if "_temp_dir" in init_args else variable
        return ConfigurationError(
            f"{named} is too long a path for Ray's sockets; allowed: a shorter one, such as "
            f"{named}=/tmp, or --backend serial ({reason})"
        )
    if "AuthenticationError" in reason:
        reason = (
            "it asks for its token: give it in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, or set "
            f"RAY_AUTH_MODE=token for that of ~/.ray/auth_token ({reason})"
        )
    return RunError(f"cannot {what}: {reason}")


def own_environment() -> dict[str, str]:
    """Return the variables with which a new Ray serves this user alone: a token, and loopback.

    A token or a mode that the user has set stands. Ray listens on every interface of a machine
    unless it takes it for one without clusters, as it does macOS and Windows.
    """
    token = _user_token()
    if not token and not os.environ.get("RAY_AUTH_MODE"):
        # Not on a command line and in no file: processes inherit it.
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", **token}


def _user_token() -> dict[str, str]:
    """Return the mode that Ray needs beside a user's token; empty without a token."""
    has_token = any(map(os.environ.get, TOKENS)) and not os.environ.get("RAY_AUTH_MODE")
    return {"RAY_AUTH_MODE": "token"} if has_token else {}


def check_fit(actor: Mapping[str, Any], nodes: Sequence[Mapping[str, float]] | None = None) -> None:
    """Raise ConfigurationError, which says what to lower, unless some node has room for an actor.

    Args:
        actor: Its ``num_cpus`` and ``num_gpus``.
        nodes: The resources of each node by Ray's names; None: of those that Ray has.
    """
    if nodes is None:
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(
        all(node.get(has, 0.0) >= actor.get(name, 0.0) for name, has in NUMBERS.items())
        for node in nodes
    ):
        return
    wanted = " and ".join(f"{name} {actor[name]:g}" for name in NUMBERS if actor.get(name))
    offers = ", ".join(
        f"{node.get('CPU', 0.0):g} CPUs and {node.get('GPU', 0.0):g} GPUs" for node in nodes
    )
    raise ConfigurationError(
        f"--backend-config: client_resources asks for {wanted} for a client, and the nodes of Ray "
        f"have {offers or 'nothing'}; allowed: what one node has; with fewer num_cpus clients run "
        "on fewer threads, and num_gpus 0.25 puts four clients on one GPU"
    )


def _read_settings() -> None:
    raylet: Any = importlib.import_module("ray._raylet")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    raylet.Config.initialize("")


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT: Ray itself tries for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Put back, after Ray has been started, what this process does on SIGINT and SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: not set by Python
                signal.signal(number, handler)


def _watch_raylet(died: Callable[[str], None]) -> None:
    """Call ``died`` and leave Ray when the raylet that this process has started dies."""
    raylet = _own_raylet()
    if raylet is None:
        return

    def watch() -> None:
        raylet.wait()
        if _own_raylet() is not raylet:  # ray.shutdown ends the raylet too, and forgets it first
            return
        died(f"Ray's raylet (process {raylet.pid}) has ended")
        time.sleep(LETTING_GO)
        if _own_raylet() is raylet:
            disconnect()

    threading.Thread(target=watch, daemon=True).start()


def _own_raylet() -> Any:
    import ray
    from ray._private import worker

    node = worker._global_node
    if node is None or not ray.is_initialized():
        return None
    started = node.all_processes.get("raylet")
    return started[0].process if started else None
