"""An app in this process, one client after the other, without Ray."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bfl.engine.flower.app import FlowerApp, client_resources, prepare
from bfl.engine.flower.messages import new_context, new_run
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

    The process computes with as many CPUs as one Ray actor would, so the results are the same.

    Args:
        app: The app.
        overrides: Values that differ from the app's defaults.
        num_supernodes: The number of clients.
        backend_config: As for ``RayEngine``; only the number of CPUs of a client counts.
        engine_run: The run, for who follows it; by default a new one.

    Raises:
        Exception: What the ServerApp raised.
    """
    from bfl.engine.serial import SerialGrid

    prepare(app, verbose=False)
    os.environ["BFL_CPUS"] = str(client_resources(backend_config)["num_cpus"])
    values = app.run_config(overrides)
    run = new_run(overrides)
    client_app, server_app = app.load_client(), app.load_server()
    engine_run = engine_run or EngineRun()
    engine_run.client_threads = cpus_of_this_process()
    grid = SerialGrid(client_app, num_supernodes, run, values, engine_run)
    with engine_run.in_progress():
        server_app(grid=grid, context=new_context(run.run_id, values))
