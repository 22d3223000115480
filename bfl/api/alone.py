"""A process keeps its networks, whose weights are set anew all the time: one user at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bfl.errors import ConfigurationError

_run = threading.Lock()
_networks = threading.Lock()


@contextmanager
def running_alone() -> Iterator[None]:
    """Make a run inside, after predictions that have begun, unless another thread makes one."""
    if not _run.acquire(blocking=False):
        raise _refusal()
    try:
        with _networks:
            yield
    finally:
        _run.release()


@contextmanager
def predicting_alone() -> Iterator[None]:
    """Predict inside, after other predictions, unless another thread makes a run."""
    if _run.locked():
        raise _refusal()
    with _networks:
        yield


def _refusal() -> ConfigurationError:
    return ConfigurationError(
        "another thread of this process makes a run, whose networks this would share, and both "
        "results would be wrong; wait for its end, or use another process"
    )
