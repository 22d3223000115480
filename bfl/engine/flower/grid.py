"""Flower's grid in memory, for a run that can be ended; and how often to look at a grid."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from bfl.engine.run import EngineRun

IN_MEMORY_INTERVAL = 0.005
"""Seconds between looks for replies that lie in a dictionary of this process.

Flower itself waits for 0.1 s, so that of a round of ten small clients half would be waiting.
"""


@contextmanager
def grid_of(engine_run: EngineRun) -> Iterator[None]:
    """Have Flower's simulation give its ServerApp a grid that raises when the run has ended."""
    from flwr.superlink.grid import InMemoryGrid

    # The package has a function of the module's name.
    simulation: Any = importlib.import_module("flwr.simulation.run_simulation")

    class RunGrid(InMemoryGrid):
        """Flower's grid in memory, for one run."""

        def __init__(self, state_factory: Any, *arguments: Any) -> None:
            super().__init__(state_factory, *arguments)
            self.engine_run = engine_run

        def get_node_ids(self) -> Iterable[int]:
            self.engine_run.raise_if_ended()
            return super().get_node_ids()

        def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
            self.engine_run.raise_if_ended()
            return super().push_messages(messages)

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
            replies = super().pull_messages(message_ids)
            # Those of a run that has been ended may be of clients that were ended with it.
            self.engine_run.raise_if_ended()
            return replies

    simulation.InMemoryGrid = RunGrid
    try:
        yield
    finally:
        simulation.InMemoryGrid = InMemoryGrid


def is_simulation(grid: Any) -> bool:
    """Return whether the nodes of a grid are simulated, by Flower's engine or by the serial one."""
    serial = sys.modules.get("bfl.engine.serial")
    return _is_in_memory(grid) or (serial is not None and isinstance(grid, serial.SerialGrid))


def _is_in_memory(grid: Any) -> bool:
    flower = sys.modules.get("flwr.superlink.grid.inmemory_grid")
    return flower is not None and isinstance(grid, flower.InMemoryGrid)


def poll_interval(grid: Any) -> float:
    """Return how many seconds to wait between looks for replies."""
    if _is_in_memory(grid):
        return IN_MEMORY_INTERVAL
    return float(getattr(grid, "pull_interval", 0.05))
