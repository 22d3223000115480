"""Bayesian federated learning on Flower: pooling posteriors and evaluating their uncertainty.

From Python ``bfl.run`` makes a run, ``bfl.load`` opens the folder of one, and both give a
``Result``, whose ``predict`` gives ``Predictions`` for images; ``bfl.study`` gives a study's table.

The library imports neither ``strategies`` (the server side of Flower) nor ``clients`` (the
client side): both import it. Its numerics are plain NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bfl.api import Predictions, Result, load, run, study

__version__ = "0.1.0"
__all__ = ["Predictions", "Result", "load", "run", "study"]


def __getattr__(name: str) -> Any:
    # Looked up when asked for: whoever imports a module of the library, as every Ray actor does,
    # imports this package, and should not wait for what it does not use.
    if name in __all__:
        import bfl.api

        return getattr(bfl.api, name)
    raise AttributeError(f"module 'bfl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
