"""Steps along the sum of all rounds' steps, the older ones fading: FedAvgM."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from bfl.aggregation.server_optimizers.base import Array, ServerOptimizer, State, server_optimizers

ROUNDS_OF_THE_POOL = 2
"""After so many rounds a running average of steps begins."""


@server_optimizers.register("momentum", aliases=("fedavgm",))
class Momentum(ServerOptimizer):
    """Steps along a velocity that keeps a share of itself from round to round.

    v ← m v + Δ, θ ← θ + η v, with Δ = pooled − previous, m ``server-momentum`` and η
    ``server-learning-rate``; v begins as the first round's Δ. With m = 0 and η = 1 nothing is
    computed and the pooled posterior is taken, bit for bit.

    With ``server-velocity`` = "average" it is v ← m v + (1 − m) Δ from the third round on; in the
    first two v = Δ.

    Source: Hsu et al. (2019), "Measuring the effects of non-identical data distribution for
    federated visual classification", section 4.3; the form without (1 − m) is that of Flower's
    FedAvgM and of Reddi et al. (2021), Algorithm 1, the one with it that of FedBE's published
    code (``FedAvgM``).
    """

    server_momentum: float = Field(
        0.0, ge=0.0, lt=1.0, description="share of its velocity that the server's step keeps"
    )
    server_velocity: Literal["sum", "average"] = Field(
        "sum",
        description="what a velocity is of the rounds' steps: a fading sum, or a running average "
        "that begins as the second round's step, as in FedBE's code",
    )

    @property
    def idle(self) -> bool:
        """Whether momentum is 0 and the rate 1."""
        return self.server_momentum == 0.0 and self.server_learning_rate == 1.0

    def init(self, size: int) -> State:
        """Return a velocity of 0."""
        return {"velocity": np.zeros(size)}

    def step(self, state: State, delta: Array, server_round: int) -> tuple[State, Array]:
        """Return the velocity, and η times it."""
        kept, added = self.server_momentum, 1.0
        if self.server_velocity == "average":
            kept = kept if server_round > ROUNDS_OF_THE_POOL else 0.0
            added = 1.0 - kept
        velocity = kept * state["velocity"] + added * delta
        return {"velocity": velocity}, self.server_learning_rate * velocity
