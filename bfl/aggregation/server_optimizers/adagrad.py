"""Steps divided by the root of the sum of all squared steps: FedAdagrad."""

from __future__ import annotations

from bfl.aggregation.server_optimizers.adaptive import AdaptiveServerOptimizer
from bfl.aggregation.server_optimizers.base import Array, server_optimizers


@server_optimizers.register("adagrad", aliases=("fedadagrad",))
class Adagrad(AdaptiveServerOptimizer):
    """Adaptive steps with v ← v + Δ², and no momentum (β₁ = 0).

    Source: Reddi et al. (2021), Algorithm 2, FedAdagrad; defaults of Flower's FedAdagrad.
    """

    def second(self, second: Array, squared: Array) -> Array:
        """Return v + Δ², (n,)."""
        return second + squared
