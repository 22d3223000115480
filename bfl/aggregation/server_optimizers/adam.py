"""Steps divided by the root of the mean squared step: FedAdam."""

from __future__ import annotations

import math

from bfl.aggregation.server_optimizers.adaptive import DecayingServerOptimizer
from bfl.aggregation.server_optimizers.base import Array, server_optimizers


@server_optimizers.register("adam", aliases=("fedadam",))
class Adam(DecayingServerOptimizer):
    """Adaptive steps with v ← β₂ v + (1 − β₂) Δ², and a rate corrected for the first rounds.

    η_t = η √(1 − β₂ᵗ⁺¹) / (1 − β₁ᵗ⁺¹) in round t, from 1: Flower counts its rounds so, one ahead
    of Kingma and Ba (2015); Reddi et al. have no correction.

    Source: Reddi et al. (2021), Algorithm 2, FedAdam; formulas and defaults of Flower's FedAdam.
    """

    def rate(self, server_round: int) -> float:
        """Return η of a round, corrected for moments that began at 0."""
        power = server_round + 1.0
        first = 1.0 - math.pow(self.server_beta_1, power)
        second = 1.0 - math.pow(self.server_beta_2, power)
        return self.server_learning_rate * math.sqrt(second) / first

    def second(self, second: Array, squared: Array) -> Array:
        """Return β₂ v + (1 − β₂) Δ², (n,)."""
        return self.server_beta_2 * second + (1.0 - self.server_beta_2) * squared
