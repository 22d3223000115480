"""One run of Flower's simulation, with what is exchanged in it; nothing of it stays."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bfl.engine.flower.actors import kept, without_tensorflow
from bfl.engine.flower.app import FlowerApp
from bfl.engine.flower.grid import grid_of, handed_out_at_once, new_context, new_run
from bfl.engine.run import EngineRun
from bfl.errors import RunError

INTERRUPTED_THREADS = 3.0
"""Seconds that an interrupted run's threads have to come to their end."""

FAILED_THREADS = 60.0
"""Seconds that a failed run's threads have: the server may be evaluating."""


def simulate(
    app: FlowerApp,
    overrides: Mapping[str, Any],
    num_supernodes: int,
    pool: Any,
    backend_config: Mapping[str, Any],
    engine_run: EngineRun,
    *,
    verbose: bool,
) -> None:
    """Run an app on a pool of actors.

    Args:
        app: The app.
        overrides: Values that differ from the app's defaults.
        num_supernodes: The number of clients.
        pool: The actors.
        backend_config: Flower's.
        engine_run: Ended when the engine fails, or when the caller is interrupted.
        verbose: Whether Flower logs what it does.

    Raises:
        RunError: The engine failed.
        Exception: What the ServerApp raised.
    """
    with without_tensorflow():
        from flwr.simulation.run_simulation import _run_simulation
    from flwr.supercore.telemetry import EventType

    run = new_run(overrides)
    with (
        _threads_ended(),
        engine_run.in_progress(),
        kept(pool, engine_run),
        grid_of(engine_run),
        handed_out_at_once(),
    ):
        try:
            _run_simulation(
                num_supernodes=num_supernodes,
                exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
                server_app_attr=app.server,
                client_app_attr=app.client,
                server_app_context=new_context(run.run_id, app.run_config(overrides)),
                backend_config=dict(backend_config),
                app_dir=str(app.folder),
                is_app=True,
                run=run,
                verbose_logging=verbose,
            )
        except RuntimeError as error:
            if "Ending simulation" not in str(error):
                raise
            raise RunError(f"Flower's simulation engine failed: {_root(error)}") from error


@contextmanager
def _threads_ended() -> Iterator[None]:
    """Wait, after a run that has not gone well, until the threads that it has started have ended.

    Flower waits for them only when all goes well. The ServerApp's is one of them.
    """
    before = set(threading.enumerate())
    limit = 0.0
    try:
        yield
    except KeyboardInterrupt:
        limit = INTERRUPTED_THREADS
        raise
    except BaseException:
        limit = FAILED_THREADS
        raise
    finally:
        if limit:
            _join([t for t in threading.enumerate() if t not in before and not t.daemon], limit)


def _join(threads: Iterable[threading.Thread], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
