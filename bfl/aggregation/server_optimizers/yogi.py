"""Adam whose second moment moves by a bounded amount: FedYogi."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from bfl.aggregation.server_optimizers.adaptive import DecayingServerOptimizer
from bfl.aggregation.server_optimizers.base import Array, server_optimizers


@server_optimizers.register("yogi", aliases=("fedyogi",))
class Yogi(DecayingServerOptimizer):
    """Adaptive steps with v ← v − (1 − β₂) Δ² sign(v − Δ²).

    Source: Reddi et al. (2021), Algorithm 2, FedYogi; formulas and defaults of Flower's FedYogi.
    """

    server_learning_rate: float = Field(
        0.01, gt=0.0, le=1e3, description="rate of the server's step; 1 goes to the pool"
    )

    def second(self, second: Array, squared: Array) -> Array:
        """Return v − (1 − β₂) Δ² sign(v − Δ²), (n,)."""
        return second - (1.0 - self.server_beta_2) * squared * np.sign(second - squared)
