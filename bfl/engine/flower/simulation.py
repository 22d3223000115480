"""Flower's Ray engine: a pool of actors that is started once for any number of runs."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from bfl.engine import ray_cluster
from bfl.engine.flower import grid_of, hand_out_at_once, new_context, new_run
from bfl.engine.flower.app import FlowerApp, client_resources
from bfl.engine.run import EngineRun
from bfl.errors import ConfigurationError, RunError
from bfl.printing import doing

INTERRUPTED_THREADS, FAILED_THREADS = 3.0, 60.0
"""Seconds that the threads of an interrupted and of a failed run have to end: it may evaluate."""

SHORTEST_LOOK, LOOKING, LOOKING_SHARE = 0.001, 0.2, 0.02
"""The pause between two looks for an actor's result: seconds at least and at most, and the share
of the time that it has been waited for."""


class RayEngine:
    """Flower's Ray engine, whose actors, with what they have built and traced, serve many runs.

    A context manager: leaving it ends the actors and Ray.

    Args:
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
        # Flower puts a dead actor back into its pool and never replaces it: have Ray restart it.
        restarts = {"max_restarts": -1, "max_task_retries": 1}
        resources = {**restarts, **client_resources(backend_config)}
        init = {"log_to_driver": verbose, **backend_config.get("init_args", {})}
        self._config = {**backend_config, "client_resources": resources, "init_args": init}
        self._pool: Any = None
        self.actors: list[Any] = []

    def __enter__(self) -> RayEngine:
        self.app.prepare(self.verbose)
        doing("Ray starts")
        try:
            ray_cluster.connect(self._config["init_args"])
            resources = self._config["client_resources"]
            with without_tensorflow():
                from flwr.simulation.ray_transport.ray_actor import BasicActorPool, ClientAppActor
            # Actors import what clients need while the server starts.
            warm_up = partial(_warm_up, self.app.client.partition(":")[0])
            try:
                self._pool = BasicActorPool(
                    actor_type=ClientAppActor,
                    client_resources=dict(resources),
                    actor_kwargs={"on_actor_init_fn": warm_up},
                )
            except ValueError as error:
                cpus, gpus = resources["num_cpus"], resources["num_gpus"]
                raise ConfigurationError(
                    f"--backend-config: client_resources asks for {cpus:g} CPUs and {gpus:g} GPUs "
                    "for a client, and no node of Ray has as many; allowed: fewer num_cpus, or a "
                    "part of a GPU (num_gpus 0.25)"
                ) from error
            self._pool.add_actors_to_pool(min(self._pool.actors_capacity, self._most_clients))
            self.actors = list(self._pool.pool)
        except BaseException:
            ray_cluster.disconnect()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        with suppress(Exception):  # of a Ray that has died, nothing can be asked
            for actor in self.actors:
                ray.kill(actor)
        ray_cluster.disconnect()

    def run(
        self, overrides: Mapping[str, Any], num_supernodes: int, engine_run: EngineRun | None = None
    ) -> None:
        """Run the app, or raise RunError where the engine fails.

        Args:
            overrides: Values that differ from the app's defaults.
        """
        with without_tensorflow():
            from flwr.simulation.run_simulation import _run_simulation
        from flwr.supercore.telemetry import EventType

        engine_run = engine_run or EngineRun()
        run = new_run(overrides)
        with (
            _threads_ended(),
            engine_run.in_progress(),
            reuse_pool(self._pool, engine_run),
            grid_of(engine_run),
            hand_out_at_once(),
        ):
            try:
                _run_simulation(
                    num_supernodes=num_supernodes,
                    exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
                    server_app_attr=self.app.server,
                    client_app_attr=self.app.client,
                    server_app_context=new_context(run.run_id, self.app.run_config(overrides)),
                    backend_config=dict(self._config),
                    app_dir=str(self.app.folder),
                    is_app=True,
                    run=run,
                    verbose_logging=self.verbose,
                )
            except RuntimeError as error:
                if "Ending simulation" not in str(error):
                    raise
                reason = ray_cluster.root_cause(error)
                raise RunError(f"Flower's simulation engine failed: {reason}") from error


def _warm_up(client_module: str) -> None:
    # What cannot be imported is reported, with the client, by the task that needs it.
    with suppress(Exception):
        importlib.import_module("bfl.keras")
        importlib.import_module(client_module)


@contextmanager
def _threads_ended() -> Iterator[None]:
    """Wait, after a run that has not gone well, until the threads that it started have ended."""
    before = set(threading.enumerate())
    try:
        yield
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        deadline = time.monotonic() + (INTERRUPTED_THREADS if interrupted else FAILED_THREADS)
        for thread in set(threading.enumerate()) - before:
            if not thread.daemon:
                thread.join(max(0.0, deadline - time.monotonic()))
        raise


def reuse_pool(pool: Any, engine_run: EngineRun) -> AbstractContextManager[Any]:
    """Have Flower run its clients on a pool of actors that outlives the run."""
    from flwr.server.superlink.fleet.vce.backend import raybackend

    class KeptRayBackend(raybackend.RayBackend):
        def build(self, app_fn: Any) -> None:
            self.pool: Any = _PoolOfRun(pool, engine_run)
            self.app_fn = app_fn

        def terminate(self) -> None:
            pass  # the actors stay

    return patch.object(raybackend, "RayBackend", KeptRayBackend)


@dataclass
class _PoolOfRun:
    """An engine's pool of actors for one run, which raises once the run has been ended.

    Flower waits for an actor with ``ray.get``, which returns neither when the raylet has died nor
    when Ray has been shut down.
    """

    pool: Any
    run: EngineRun

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)

    def submit(self, actor_fn: Any, job: Any) -> Any:
        self.run.raise_if_ended()
        return self.pool.submit(actor_fn, job)

    def fetch_result_and_return_actor_to_pool(self, future: Any) -> Any:
        import ray

        # Not inside Ray, which ends who waits in it when the raylet dies, without a word.
        began = time.monotonic()
        while not ray.wait([future], num_returns=1, timeout=0)[0]:
            waited = time.monotonic() - began
            time.sleep(min(LOOKING, max(SHORTEST_LOOK, LOOKING_SHARE * waited)))
            if (death := ray_cluster.death()) and not self.run.ended:
                self.run.end(death)
                # At once: Ray may end this process before anything else can be said.
                lines = [death, *filter(None, [self.run.advice])]
                print("\n  ".join(lines), file=sys.stderr, flush=True)
            self.run.raise_if_ended()
        try:
            return self.pool.fetch_result_and_return_actor_to_pool(future)
        except Exception:
            # In a terminal the actors are interrupted together with this process: a client that
            # fails by that has not failed, and this process may be told a moment later.
            time.sleep(LOOKING)
            self.run.raise_if_ended()
            raise


@contextmanager
def without_tensorflow() -> Iterator[None]:
    """Keep Flower's simulation modules from importing TensorFlow, which takes seconds."""
    if "tensorflow" in sys.modules:
        yield
        return
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["tensorflow"]
