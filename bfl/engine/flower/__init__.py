"""The one door to Flower's private parts, and what runs a Flower app through it.

The public ``run_simulation`` gives an app no run configuration; what Flower's own command used
until 1.26 does. All that this project takes from Flower outside ``flwr.app``, ``flwr.serverapp``
and ``flwr.clientapp`` is taken in this folder; ``tests/engine/test_private_parts.py`` names each
part, and the next release fails there first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bfl.engine.flower.grid import (
    CLIENT_RAISED,
    NO_REPLY,
    is_simulation,
    log,
    new_run,
    poll_interval,
)
from bfl.engine.flower.replies import Replies, UnusableReplyError

if TYPE_CHECKING:
    from bfl.engine.flower.app import OWN_SERVER, FlowerApp, Values, run_serially
    from bfl.engine.flower.simulation import RayEngine

__all__ = [
    "CLIENT_RAISED",
    "NO_REPLY",
    "OWN_SERVER",
    "FlowerApp",
    "RayEngine",
    "Replies",
    "UnusableReplyError",
    "Values",
    "is_simulation",
    "log",
    "new_run",
    "poll_interval",
    "run_serially",
]


def __getattr__(name: str) -> Any:
    """Return what runs an app, which a Strategy does without."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module = "simulation" if name == "RayEngine" else "app"
    return getattr(import_module(f"{__name__}.{module}"), name)
