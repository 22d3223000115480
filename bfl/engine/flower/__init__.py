"""The one door to Flower's private parts, and what runs a Flower app through it.

Flower 1.26 was the last with a ``flower-simulation`` command. What it did is still there as
``flwr.simulation.run_simulation._run_simulation``, which also gives an app its run configuration;
the public ``run_simulation`` does not. All that this project takes from Flower outside its public
modules (``flwr.app``, ``flwr.serverapp``, ``flwr.clientapp``) is taken in this folder, and each
part is named in ``tests/engine/test_private_parts.py``, where the next release fails first.

- ``app``: an app as its pyproject.toml describes it, and its run in this process, without Ray.
- ``simulation``: Flower's Ray engine, started once for any number of runs.
- ``replies``: a deployment's replies, each of which comes by itself, or is refused with a reason.
- ``superlink``: Flower's SuperLink, which waits for its database.
- ``grid``: Flower's grid in memory, for a run that can be ended; identities of runs and messages,
  codes of errors, Flower's log.
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
