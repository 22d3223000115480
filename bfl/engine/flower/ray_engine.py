"""Flower's Ray engine, started once for any number of runs; Flower itself starts one per run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from bfl.engine import ray_cluster
from bfl.engine.flower.actors import start_actors
from bfl.engine.flower.app import FlowerApp, client_resources, prepare
from bfl.engine.flower.simulation import simulate
from bfl.engine.run import EngineRun


class RayEngine:
    """Flower's Ray engine, started once for any number of runs.

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
        self._actors: list[Any] = []
        self._run: EngineRun | None = None
        self._death = ""

    def __enter__(self) -> RayEngine:
        prepare(self.app, self.verbose)
        try:
            ray_cluster.connect(self._config["init_args"], self._died)
            resources = self._config["client_resources"]
            ray_cluster.check_fit(resources)
            self._pool = start_actors(self.app, resources, self._most_clients)
            self._actors = list(self._pool.pool)
        except BaseException:
            ray_cluster.disconnect()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        ray_cluster.end(self._actors)
        ray_cluster.disconnect()

    @property
    def actors(self) -> int:
        """The number of actors, each of which runs one client at a time."""
        return int(self._pool.num_actors)

    @property
    def alive(self) -> bool:
        """True if another run can be made."""
        return not self._death

    def run(
        self,
        overrides: Mapping[str, Any],
        num_supernodes: int,
        engine_run: EngineRun | None = None,
    ) -> None:
        """Run the app.

        Args:
            overrides: Values that differ from the app's defaults.
            num_supernodes: The number of clients.
            engine_run: The run, for who follows it; by default a new one.

        Raises:
            RunError: The engine failed.
            Exception: What the ServerApp raised.
        """
        self._run = engine_run or EngineRun()
        if self._death:
            self._run.end(self._death)
        try:
            simulate(
                self.app,
                overrides,
                num_supernodes,
                self._pool,
                self._config,
                self._run,
                verbose=self.verbose,
            )
        finally:
            self._run = None

    def _died(self, reason: str) -> None:
        """Take note, in another thread, that no actor will reply any more."""
        self._death = f"the simulation engine has died: {reason}"
        if self._run:
            self._run.end(self._death)
            # At once: Ray may end this process before anything else can be said.
            lines = [self._death, *filter(None, [self._run.advice])]
            print("\n  ".join(lines), file=sys.stderr, flush=True)


def _ray_config(given: Mapping[str, Any], verbose: bool) -> dict[str, Any]:
    """Return Flower's backend configuration: what is given, and our defaults."""
    resources = client_resources(given)
    # Flower puts a dead actor back into its pool and never replaces it: have Ray restart it.
    resources.setdefault("max_restarts", -1)
    resources.setdefault("max_task_retries", 1)
    init = {"log_to_driver": verbose, **given.get("init_args", {})}
    return {**given, "client_resources": resources, "init_args": init}
