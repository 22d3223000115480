"""Server optimizers: ``init`` and ``apply`` on the vector of all that a round may move."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.posteriors.posterior import Posterior
from bfl.registry import Component, Registry

Array = npt.NDArray[np.float64]
State = Mapping[str, npt.NDArray[Any]]
"""Arrays that an optimizer keeps from round to round, by name, for checkpoints."""


@dataclass(frozen=True)
class StepContext:
    """Facts of a round, from 1, for the step that a server makes in it.

    Attributes:
        asked: How many clients were asked to train.
        pooled: How many clients' updates were pooled.
        combined: What clients have sent besides their posteriors, each array summed or averaged
            over the pooled clients as its part declares (``bfl.federation.parts``).
    """

    server_round: int
    asked: int = 0
    pooled: int = 0
    combined: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


class ServerOptimizer(Component, ABC):
    """Turns the step from the previous posterior to the pooled one into the step that is made.

    It moves means and point parameters. Variances are the pool's: a step of momentum beyond the
    pool would make small ones negative. So are moving means and variances of batch normalisation,
    where the server knows the network's manifest.

    Source: Reddi et al. (2021), "Adaptive Federated Optimization", Algorithm 2, which treats
    Δ = pooled − previous as the negative of a gradient.
    """

    server_learning_rate: float = Field(1.0, gt=0.0, le=1e3)
    """rate of the server's step; 1 goes to the pool"""

    @property
    def active(self) -> bool:
        """False if the step is the one to the pool, so that nothing is computed."""
        return True

    def has(self) -> frozenset[str]:
        """Return whether the step differs from that to the pool."""
        return frozenset({"moved-pool"}) if self.active else frozenset()

    @abstractmethod
    def init(self, size: int) -> State:
        """Return the state before the first round for ``size`` parameters: arrays by name."""

    @abstractmethod
    def step(self, state: State, delta: Array, context: StepContext) -> tuple[State, Array]:
        """Return the next state and the step (n,) made, of pooled minus previous values (n,)."""

    def apply(
        self,
        state: State,
        previous: Posterior,
        pooled: Posterior,
        context: StepContext,
        *,
        moves_point: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[State, Posterior]:
        """Return the next state and the posterior that the next round begins with.

        ``state`` is what the last call has returned; ``moves_point`` (P,) which points may move.
        """
        if not self.active:
            return state, pooled
        moves = np.ones(pooled.point.size, bool) if moves_point is None else moves_point
        before, after = (
            np.concatenate([each.mean, each.point[moves]]).astype(np.float64)
            for each in (previous, pooled)
        )
        delta = after - before
        following, step = self.step(state or self.init(delta.size), delta, context)
        moved = before + step
        point = pooled.point.copy()
        point[moves] = moved[pooled.size :]
        return following, Posterior(
            mean=moved[: pooled.size].astype(pooled.mean.dtype),
            variance=pooled.variance,
            point=point,
        )


server_optimizers: Registry[ServerOptimizer] = Registry(
    "server-optimizer", "bfl.aggregation.server_optimizers"
)


@server_optimizers.register("none")
class NoServerOptimizer(ServerOptimizer):
    """The pooled posterior as it is."""

    active: ClassVar[bool] = False

    def init(self, size: int) -> State:
        """Return nothing."""
        return {}

    def step(self, state: State, delta: Array, context: StepContext) -> tuple[State, Array]:
        """Return the step to the pool."""
        return state, delta


@server_optimizers.register("adam", aliases=("fedadam",))
class Adam(ServerOptimizer):
    """θ ← θ + η_t m / (√v + τ), with m ← β₁ m + (1 − β₁) Δ and v ← β₂ v + (1 − β₂) Δ².

    Δ = pooled − previous; m and v begin at 0. η_t = η √(1 − β₂ᵗ⁺¹) / (1 − β₁ᵗ⁺¹) in round t ≥ 1, as
    Flower counts, one ahead of Kingma and Ba (2015); Reddi et al. have no correction.

    Source: Reddi et al. (2021), "Adaptive Federated Optimization", Algorithm 2, FedAdam; formulas
    and defaults of Flower's FedAdam.
    """

    server_learning_rate: float = Field(0.1, gt=0.0, le=1e3)
    """rate of the server's step; 1 goes to the pool"""
    server_tau: float = Field(1e-3, gt=0.0)
    """what is added to the root that the server's step is divided by"""
    server_beta_1: float = Field(0.9, ge=0.0, lt=1.0)
    """share of itself that the server's mean step keeps"""
    server_beta_2: float = Field(0.99, ge=0.0, lt=1.0)
    """share of itself that its mean squared step keeps"""

    def init(self, size: int) -> State:
        """Return moments of 0."""
        return {"first-moment": np.zeros(size), "second-moment": np.zeros(size)}

    def step(self, state: State, delta: Array, context: StepContext) -> tuple[State, Array]:
        """Return both moments, and the step that they give."""
        beta_1, beta_2, power = self.server_beta_1, self.server_beta_2, context.server_round + 1.0
        first = beta_1 * state["first-moment"] + (1.0 - beta_1) * delta
        second = beta_2 * state["second-moment"] + (1.0 - beta_2) * np.square(delta)
        root = math.sqrt(1.0 - math.pow(beta_2, power))
        rate = self.server_learning_rate * root / (1.0 - math.pow(beta_1, power))
        moments = {"first-moment": first, "second-moment": second}
        return moments, rate * first / (np.sqrt(second) + self.server_tau)


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

    server_momentum: float = Field(0.0, ge=0.0, lt=1.0)
    """share of its velocity that the server's step keeps"""
    server_velocity: Literal["sum", "average"] = "sum"
    """what a velocity is of the rounds' steps: a fading sum, or a running average that begins as
    the second round's step, as in FedBE's code"""

    @property
    def active(self) -> bool:
        """False if momentum is 0 and the rate 1."""
        return self.server_momentum != 0.0 or self.server_learning_rate != 1.0

    def init(self, size: int) -> State:
        """Return a velocity of 0."""
        return {"velocity": np.zeros(size)}

    def step(self, state: State, delta: Array, context: StepContext) -> tuple[State, Array]:
        """Return the velocity, and η times it."""
        kept, added = self.server_momentum, 1.0
        if self.server_velocity == "average":
            kept = kept if context.server_round > 2 else 0.0
            added = 1.0 - kept
        velocity = kept * state["velocity"] + added * delta
        return {"velocity": velocity}, self.server_learning_rate * velocity
