"""What runs a study's runs: one engine, kept warm from run to run and renewed after a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from bfl.engine.flower import FlowerApp, run_serially
from bfl.engine.run import EngineRun


class Engine(Protocol):
    """What runs the app: Flower's Ray engine, or this process."""

    @property
    def alive(self) -> bool:
        """Whether another run can be made."""

    def run(self, overrides: Mapping[str, Any], num_supernodes: int, engine_run: EngineRun) -> None:
        """Run the app once, with some keys set, on so many clients."""


MakeEngine = Callable[[], AbstractContextManager[Engine]]


class SerialEngine:
    """Runs the app in this process, one client after the other.

    Args:
        app: The app.
        backend_config: As for ``RayEngine``; only the number of CPUs of a client counts.
    """

    def __init__(self, app: FlowerApp, backend_config: Mapping[str, Any]) -> None:
        self.app = app
        self.backend_config = backend_config

    def __enter__(self) -> SerialEngine:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def alive(self) -> bool:
        """See ``Engine``."""
        return True

    def run(self, overrides: Mapping[str, Any], num_supernodes: int, engine_run: EngineRun) -> None:
        """See ``Engine``."""
        run_serially(self.app, overrides, num_supernodes, self.backend_config, engine_run)


class WarmEngine:
    """An engine that is started for the first run and stays for the others.

    Args:
        make: Makes one.
    """

    def __init__(self, make: MakeEngine) -> None:
        self._make = make
        self._manager: AbstractContextManager[Engine] | None = None
        self._engine: Engine | None = None

    def get(self) -> Engine:
        """Return the engine, started; another one if it has died after the last run.

        Raises:
            ConfigurationError: It cannot be had as configured.
            RunError: It cannot be started.
        """
        if self._engine is not None and not self._engine.alive:
            self.end()
        if self._engine is None:
            manager = self._make()
            self._engine = manager.__enter__()
            self._manager = manager
        return self._engine

    def end(self) -> None:
        """End the engine; the next ``get`` starts another one."""
        manager, self._manager, self._engine = self._manager, None, None
        if manager is not None:
            # An engine that has died cannot be ended in good order.
            with suppress(Exception):
                manager.__exit__(None, None, None)

    def __enter__(self) -> WarmEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
