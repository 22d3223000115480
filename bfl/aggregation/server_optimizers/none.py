"""No server optimizer: the pooled posterior is the next global one."""

from __future__ import annotations

from bfl.aggregation.server_optimizers.base import Array, ServerOptimizer, State, server_optimizers


@server_optimizers.register("none")
class NoServerOptimizer(ServerOptimizer):
    """The pooled posterior as it is."""

    @property
    def idle(self) -> bool:
        """True."""
        return True

    def init(self, size: int) -> State:
        """Return nothing."""
        return {}

    def step(self, state: State, delta: Array, server_round: int) -> tuple[State, Array]:
        """Return the step to the pool."""
        return state, delta
