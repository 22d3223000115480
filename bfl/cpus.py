"""The CPUs and the memory that there are."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import cache

import psutil
from threadpoolctl import ThreadpoolController


def available_cpus() -> int:
    """Return how many CPUs the operating system gives this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the machine's memory in bytes."""
    return int(psutil.virtual_memory().total)


@cache  # finding NumPy's and SciPy's libraries takes milliseconds
def _linear_algebra() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which linear algebra has one thread: no bit depends on how many."""
    limited: AbstractContextManager[object] = _linear_algebra().limit(limits=1)
    return limited
