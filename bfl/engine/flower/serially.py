"""An app in this process, one client after the other, without Ray."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bfl.engine.flower.app import FlowerApp, client_resources, prepare
from bfl.engine.flower.grid import new_context, new_run
from bfl.engine.resources import cpus_of_this_process
from bfl.engine.run import EngineRun


def run_serially(
    app: FlowerApp,
    overrides: Mapping[str, Any],
    num_supernodes: int,
    backend_config: Mapping[str, Any],
    engine_run: EngineRun | None = None,
) -> None:
    """Run an app in this process, one client after the other, without Ray.

    The process computes with as many CPUs as one Ray actor would, so the results are the same. One
    that has already computed with others, as after a run on Ray, keeps them, with a warning. The
    process's environment is afterwards what it was.

    Args:
        overrides: Values that differ from the app's defaults.
        backend_config: As for ``RayEngine``; only the number of CPUs of a client counts.
        engine_run: The run, for who follows it; by default a new one.

    Raises:
        Exception: What the ServerApp raised.
    """
    from bfl.engine.serial import SerialGrid

    prepare(app, verbose=False)
    with _cpus_of_a_client(client_resources(backend_config)["num_cpus"]):
        values = app.run_config(overrides)
        run = new_run(overrides)
        client_app, server_app = app.load_client(), app.load_server()
        engine_run = engine_run or EngineRun()
        engine_run.client_threads = cpus_of_this_process()
        _warn_of_other_threads(engine_run.client_threads)
        grid = SerialGrid(client_app, num_supernodes, run, values, engine_run)
        with engine_run.in_progress():
            server_app(grid=grid, context=new_context(run.run_id, values))


@contextmanager
def _cpus_of_a_client(number: float) -> Iterator[None]:
    """Have the process say that it may use a number of CPUs, and then what it said before."""
    before = os.environ.get("BFL_CPUS")
    os.environ["BFL_CPUS"] = str(number)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("BFL_CPUS", None)
        else:
            os.environ["BFL_CPUS"] = before


def _warn_of_other_threads(wanted: int) -> None:
    from bfl.keras import configured_threads

    if (has := configured_threads()) not in (None, wanted):
        warnings.warn(
            f"a client has {wanted} CPUs on this backend, and TensorFlow already computes with "
            f"{has} threads in this process, which it keeps: the last digits may differ. For the "
            "same bits, make the run in a process of its own, or with num_cpus "
            f"{has} in client_resources of the backend's configuration",
            stacklevel=3,
        )
