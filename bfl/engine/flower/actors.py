"""A pool of Ray actors that outlives a run, and does not wait for what will not come."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from bfl.engine.flower.app import FlowerApp
from bfl.engine.run import EngineRun

LOOKING = 0.2
"""Seconds between looks whether a run has been ended, for who waits for an actor, at most."""

SHORTEST_LOOK = 0.001
"""Seconds between looks at least."""

LOOKING_SHARE = 0.02
"""The pause between two looks for a result, as a share of the time that it has been waited for."""


def start_actors(app: FlowerApp, resources: Mapping[str, Any], most: int) -> Any:
    """Return a pool of actors that import what clients need while the server starts.

    Args:
        app: The app whose clients they run.
        resources: What an actor gets, as Ray's ``options`` take it.
        most: The greatest number of actors.
    """
    with without_tensorflow():
        from flwr.simulation.ray_transport.ray_actor import BasicActorPool, ClientAppActor

    pool = BasicActorPool(
        actor_type=ClientAppActor,
        client_resources=dict(resources),
        actor_kwargs={"on_actor_init_fn": partial(_warm_up, app.client.partition(":")[0])},
    )
    pool.add_actors_to_pool(min(pool.actors_capacity, most))
    return pool


def _warm_up(client_module: str) -> None:
    """Import, in an actor that has just started, what its first client would wait for."""
    # What cannot be imported is reported, with the client, by the task that needs it.
    with suppress(Exception):
        importlib.import_module("bfl.keras")
        importlib.import_module(client_module)


@contextmanager
def kept(pool: Any, engine_run: EngineRun) -> Iterator[None]:
    """Have Flower run its clients on a pool of actors that outlives the run."""
    from flwr.server.superlink.fleet.vce.backend import raybackend

    class KeptRayBackend(raybackend.RayBackend):
        """Flower's Ray backend on actors that are there already and stay."""

        def build(self, app_fn: Any) -> None:
            self.pool: Any = _PoolOfRun(pool, engine_run)
            self.app_fn = app_fn

        def terminate(self) -> None:
            """Leave the actors to the engine."""

    before = raybackend.RayBackend
    raybackend.RayBackend = KeptRayBackend  # type: ignore[misc]
    try:
        yield
    finally:
        raybackend.RayBackend = before  # type: ignore[misc]


class _PoolOfRun:
    """Pool of actors for Flower's backend: the kept one, as long as the run goes on.

    Flower waits for an actor with ``ray.get``, which returns neither when the raylet has died nor
    when Ray has been shut down.
    """

    def __init__(self, pool: Any, engine_run: EngineRun) -> None:
        self._pool = pool
        self._run = engine_run

    @property
    def num_actors(self) -> int:
        return int(self._pool.num_actors)

    def submit(self, actor_fn: Any, job: Any) -> Any:
        self._run.raise_if_ended()
        return self._pool.submit(actor_fn, job)

    def fetch_result_and_return_actor_to_pool(self, future: Any) -> Any:
        import ray

        # Not inside Ray: who is there when the raylet dies is ended by it, at once and without a
        # word. Outside there is time to hear of it.
        began = time.monotonic()
        while not ray.wait([future], num_returns=1, timeout=0)[0]:
            waited = time.monotonic() - began
            time.sleep(min(LOOKING, max(SHORTEST_LOOK, LOOKING_SHARE * waited)))
            self._run.raise_if_ended()
        try:
            return self._pool.fetch_result_and_return_actor_to_pool(future)
        except Exception:
            # In a terminal the actors are interrupted together with this process: a client that
            # fails by that has not failed, and this process may be told a moment later.
            time.sleep(LOOKING)
            self._run.raise_if_ended()
            raise

    def add_actor_back_to_pool(self, future: Any) -> None:
        self._pool.add_actor_back_to_pool(future)


@contextmanager
def without_tensorflow() -> Iterator[None]:
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
