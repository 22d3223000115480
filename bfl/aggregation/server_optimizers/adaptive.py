"""What Adagrad, Adam and Yogi share on the server: a step divided by the root of its history."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from pydantic import Field

from bfl.aggregation.server_optimizers.base import Array, ServerOptimizer, State


class AdaptiveServerOptimizer(ServerOptimizer):
    """θ ← θ + η_t m / (√v + τ), with m ← β₁ m + (1 − β₁) Δ and Δ = pooled − previous.

    What v is, and whether the rate is corrected for the first rounds, is the subclass's. Both m
    and v begin at 0. Settings and their defaults are those of Flower's strategies.

    Source: Reddi et al. (2021), "Adaptive Federated Optimization", Algorithm 2.
    """

    server_learning_rate: float = Field(
        0.1, gt=0.0, le=1e3, description="rate of the server's step; 1 goes to the pool"
    )
    server_tau: float = Field(
        1e-3, gt=0.0, description="what is added to the root that the server's step is divided by"
    )

    @property
    def first_decay(self) -> float:
        """β₁: the share of itself that the mean step keeps."""
        return 0.0

    @abstractmethod
    def second(self, second: Array, squared: Array) -> Array:
        """Return the next v (n,) from the last one and Δ² (n,)."""

    def rate(self, server_round: int) -> float:
        """Return η of a round."""
        return self.server_learning_rate

    def init(self, size: int) -> State:
        """Return moments of 0."""
        return {"first-moment": np.zeros(size), "second-moment": np.zeros(size)}

    def step(self, state: State, delta: Array, server_round: int) -> tuple[State, Array]:
        """Return both moments, and the step that they give."""
        decay = self.first_decay
        first = decay * state["first-moment"] + (1.0 - decay) * delta
        second = self.second(state["second-moment"], np.square(delta))
        moments = {"first-moment": first, "second-moment": second}
        return moments, self.rate(server_round) * first / (np.sqrt(second) + self.server_tau)


class DecayingServerOptimizer(AdaptiveServerOptimizer):
    """An adaptive server optimizer whose moments forget: of each a share is kept in a round."""

    server_beta_1: float = Field(
        0.9, ge=0.0, lt=1.0, description="share of itself that the server's mean step keeps"
    )
    server_beta_2: float = Field(
        0.99, ge=0.0, lt=1.0, description="share of itself that its mean squared step keeps"
    )

    @property
    def first_decay(self) -> float:
        """β₁."""
        return self.server_beta_1
