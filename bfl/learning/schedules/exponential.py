"""A learning rate that is constant at first and then decays exponentially."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import Field

from bfl.learning.schedules.base import Schedule, schedules


@schedules.register("exponential")
class ExponentialSchedule(Schedule):
    """η · exp(−decay · max(0, round − silent rounds)).

    Source: Fischer et al. (2024), section 3.3: η = 0.001, "a factor of .04 every round after a
    silent period of 50 aggregation rounds".
    """

    lr_decay: float = Field(
        0.04, ge=0.0, description="what the log of the learning rate loses a round, once it decays"
    )
    lr_silent_rounds: int = Field(50, ge=0, description="rounds before the learning rate decays")

    def idle_settings(self) -> Mapping[str, str]:
        """Return that a rate which does not decay has no silent period."""
        return {} if self.lr_decay else {"lr-silent-rounds": "lr-decay is 0"}

    def learning_rate(self, initial: float, server_round: int, rounds: int) -> float:
        """Return the decayed rate."""
        return initial * math.exp(-self.lr_decay * max(0, server_round - self.lr_silent_rounds))
