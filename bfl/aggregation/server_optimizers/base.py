"""What a server optimizer is: ``init`` and ``apply`` on the vector of all that it may move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.posteriors.posterior import Posterior, Vector
from bfl.registry import Component, Registry

Array = npt.NDArray[np.float64]
State = Mapping[str, npt.NDArray[Any]]
"""What an optimizer keeps from round to round: arrays by name, for checkpoints."""


class ServerOptimizer(Component, ABC):
    """Turns the step from the previous posterior to the pooled one into the step that is made.

    It moves means and point parameters. Variances are the pool's: a step of momentum beyond the
    pool would make small ones negative, and a rule that divides variances by K would be
    extrapolated to 0. So are point parameters that training does not move by their gradient (the
    moving means and variances of batch normalisation): they are measured, and a variance of them
    could become negative as well. Which these are the network's manifest says; where the server
    knows none it moves all point parameters.

    Source: Reddi et al. (2021), "Adaptive Federated Optimization", Algorithm 2, which treats
    Δ = pooled − previous as the negative of a gradient.
    """

    server_learning_rate: float = Field(
        1.0, gt=0.0, le=1e3, description="rate of the server's step; 1 goes to the pool"
    )

    @property
    def idle(self) -> bool:
        """Whether the step that is made is the one to the pool, so that nothing is computed."""
        return False

    def has(self) -> frozenset[str]:
        """Return whether the step differs from that to the pool."""
        return frozenset() if self.idle else frozenset({"moved-pool"})

    @abstractmethod
    def init(self, size: int) -> State:
        """Return the state before the first round for ``size`` parameters: arrays by name."""

    @abstractmethod
    def step(self, state: State, delta: Array, server_round: int) -> tuple[State, Array]:
        """Return the next state and the step (n,) that is made.

        Args:
            state: What ``init`` or the last call has returned.
            delta: (n,) pooled minus previous values.
            server_round: The round, from 1.
        """

    def apply(
        self,
        state: State,
        previous: Posterior,
        pooled: Posterior,
        server_round: int,
        *,
        moves_point: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[State, Posterior]:
        """Return the next state and the posterior that the next round begins with.

        Args:
            state: What the last call has returned; empty before the first round.
            previous: The global posterior of the round before.
            pooled: What the clients' posteriors have been pooled to.
            server_round: The round, from 1.
            moves_point: (P,) the point parameters that it may move; None for all of them.

        Returns:
            The state, and a posterior in the types of ``pooled``.
        """
        if self.idle:
            return state, pooled
        moves = np.ones(pooled.point.size, bool) if moves_point is None else moves_point
        before = _joined(previous, moves)
        delta = _joined(pooled, moves) - before
        following, step = self.step(state or self.init(delta.size), delta, server_round)
        moved = before + step
        point = pooled.point.copy()
        point[moves] = moved[pooled.size :]
        return following, Posterior(
            mean=moved[: pooled.size].astype(pooled.mean.dtype),
            variance=pooled.variance,
            point=point,
        )


def _joined(posterior: Posterior, moves: npt.NDArray[np.bool_]) -> Array:
    """Return all that may be moved, in float64."""
    vectors: list[Vector] = [posterior.mean, posterior.point[moves]]
    return np.concatenate(vectors).astype(np.float64)


server_optimizers: Registry[ServerOptimizer] = Registry(
    "server-optimizer", "bfl.aggregation.server_optimizers"
)
