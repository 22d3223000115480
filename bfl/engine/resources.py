"""The CPUs that a process may use."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bfl.cpus import available_cpus


def cpus_of_this_process() -> int:
    """Return how many CPUs this process may use, at least 1.

    Within a Ray actor that is the actor's share; elsewhere the environment variable BFL_CPUS if it
    is set, and otherwise all CPUs that the operating system gives the process.
    """
    return max(
        1, int(_share_of_ray_actor() or float(os.environ.get("BFL_CPUS") or 0) or available_cpus())
    )


def resident_memory() -> float:
    """Return the memory that this process holds at the moment, in MB; 0 where that is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:  # not Linux
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def available_memory() -> float:
    """Return the memory in bytes that the system could give at the moment; infinite if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        return math.inf
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024.0 * int(found[0]) if found else math.inf


def in_ray_actor() -> bool:
    """Return whether this process is one of Ray's workers."""
    ray = sys.modules.get("ray")  # a Ray worker has imported it
    if ray is None or not ray.is_initialized():
        return False
    return bool(ray.get_runtime_context().worker.mode == ray.WORKER_MODE)


def in_simulation(node_config: Mapping[str, Any]) -> bool:
    """Return whether the node that this process plays is a simulated one.

    Nodes are simulated by Ray's actors and by the serial engine, which says so in the node's
    configuration. A SuperNode's processes are neither, and what the server says does not count.
    """
    return node_config.get("simulation") is True or in_ray_actor()


def _share_of_ray_actor() -> float:
    """Return the CPUs assigned to this process by Ray; 0 when it is not a Ray worker."""
    if not in_ray_actor():
        return 0.0
    context = sys.modules["ray"].get_runtime_context()
    # An actor with less than one CPU still computes with one thread.
    return max(1.0, float(context.get_assigned_resources().get("CPU", 0.0)))
