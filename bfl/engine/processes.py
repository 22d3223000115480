"""CPUs, memory and environment of this process, and the processes that it has started."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

WITH_PARENT = Path(__file__).with_name("with_parent.py")


def cpus_of_this_process() -> int:
    """Return how many CPUs this process may use, at least 1.

    A Ray actor has its share; other processes BFL_CPUS, or all that the system gives them.
    """
    from bfl.experiments.results.environment import available_cpus  # bfl --help needs no NumPy

    if in_ray_actor():
        context = sys.modules["ray"].get_runtime_context()
        # An actor with less than one CPU still computes with one thread.
        return max(1, int(context.get_assigned_resources().get("CPU", 0.0)))
    return max(1, int(float(os.environ.get("BFL_CPUS") or 0) or available_cpus()))


def in_ray_actor() -> bool:
    """Return whether this process is one of Ray's workers."""
    ray = sys.modules.get("ray")  # a Ray worker has imported it
    if ray is None or not ray.is_initialized():
        return False
    return bool(ray.get_runtime_context().worker.mode == ray.WORKER_MODE)


def in_simulation(node_config: Mapping[str, Any]) -> bool:
    """Return whether the node that this process plays is simulated, by Ray or the serial engine."""
    return node_config.get("simulation") is True or in_ray_actor()


@contextmanager
def environment_with(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process's environment meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})


def with_parent(*words: str | Path) -> list[str]:
    """Return a command as one that ends with this process, also when this one is killed (Linux).

    Start it from the main thread: the kernel takes the end of the thread for the process's.
    """
    return [sys.executable, "-I", "-S", str(WITH_PARENT), str(os.getpid()), *map(str, words)]


def descendants() -> list[psutil.Process]:
    """Return the processes started by this one, by those, and so on; none where that is unknown."""
    with suppress(psutil.Error, OSError):
        return list(psutil.Process().children(recursive=True))
    return []


def kill(processes: Iterable[psutil.Process]) -> None:
    """End processes at once, those that are still there."""
    for process in processes:
        with suppress(psutil.Error, OSError):
            process.kill()
