"""The one door to Ray: starting it or joining a cluster, and noticing its end."""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from bfl.engine.processes import environment_with
from bfl.errors import RunError

OWN = "local"
"""Ray's address for a Ray of your own, also where another one is running already."""


def connect(init_args: Mapping[str, Any]) -> None:
    """Start Ray, with a token of its own and on loopback, or join the cluster that is named.

    Args:
        init_args: Arguments of ``ray.init``; ``address``, or RAY_ADDRESS in the environment, names
            a cluster.

    Raises:
        RunError: Ray cannot be started, or the cluster cannot be joined.
    """
    import ray
    from ray._private import ray_constants

    address = init_args.get("address") or os.environ.get("RAY_ADDRESS") or OWN
    joins = address != OWN
    arguments = {"include_dashboard": False, "logging_level": logging.ERROR, **init_args}
    arguments["address"] = address
    path = os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")]))
    try:
        # Ray reads the variables while it starts, and its processes inherit them.
        own = {} if joins else {"PYTHONPATH": path, **own_environment()}
        with environment_with(own), _own_signal_handlers():
            _read_settings()
            if joins:
                kept = {k: v for k, v in os.environ.items() if k == "TF_USE_LEGACY_KERAS"}
                ray.init(**arguments, runtime_env={"env_vars": {**kept, "PYTHONPATH": path}})
            else:
                # Without a runtime environment actors can be the processes that Ray has started
                # beforehand. It has read the first of ``own_environment`` when it was imported.
                with patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False):
                    ray.init(**arguments)
    except Exception as error:
        root = root_cause(error)
        # Ray may put a whole traceback into its message.
        reason = (str(root).strip() or repr(root)).splitlines()[-1]
        if "AF_UNIX path length" in str(error):
            reason += "; set TMPDIR to a shorter path, such as /tmp, or give --backend serial"
        what = f"join the Ray cluster at {address}" if joins else "start Ray"
        raise RunError(f"cannot {what}: {reason}") from error


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


def own_environment() -> dict[str, str]:
    """Return the variables with which a new Ray serves this user alone: a token, and loopback.

    A mode that the user has set stands. Ray listens on every interface of a machine unless it takes
    it for one without clusters, as it does macOS and Windows.
    """
    # Not on a command line and in no file: processes inherit it.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    own = {} if os.environ.get("RAY_AUTH_MODE") else token
    return {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", **own}


def _read_settings() -> None:
    raylet: Any = importlib.import_module("ray._raylet")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    raylet.Config.initialize("")


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Put back, after Ray has been started, what this process does on SIGINT and SIGTERM."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: not set by Python. Another thread sets none.
            if handler is not None and threading.current_thread() is threading.main_thread():
                signal.signal(number, handler)


def death() -> str:
    """Return that the raylet which this process has started has ended; empty if it has not."""
    from ray._private import worker

    node = worker._global_node
    started = node.all_processes.get("raylet") if node else None
    if not started or started[0].process.poll() is None:
        return ""
    return f"the simulation engine has died: Ray's raylet (process {started[0].process.pid})"
