"""Bayesian federated learning on Flower: pooling posteriors and evaluating their uncertainty.

``bfl.run`` makes a run, ``bfl.load`` opens the folder of one, and both return a ``Result``, which
predicts; ``bfl.study`` returns a study's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bfl.api import Predictions, Result, load, run, study

__version__ = "0.1.0"
__all__ = ["Predictions", "Result", "load", "run", "study"]


def __getattr__(name: str) -> Any:
    # Every Ray actor imports this package, and should not wait for what it does not use.
    if name in __all__:
        import bfl.api

        return getattr(bfl.api, name)
    raise AttributeError(f"module 'bfl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
