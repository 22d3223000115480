"""The CPUs that the operating system gives this process."""

from __future__ import annotations

import os


def available_cpus() -> int:
    """Return how many CPUs the operating system gives this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
