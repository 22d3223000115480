"""Server optimizers: what the server does with the step from the previous to the pooled posterior.

- ``base``: what a server optimizer is, and the registry ``server_optimizers``.
- every other module: one server optimizer.
"""

from bfl.aggregation.server_optimizers.base import ServerOptimizer, State, server_optimizers

__all__ = ["ServerOptimizer", "State", "server_optimizers"]
