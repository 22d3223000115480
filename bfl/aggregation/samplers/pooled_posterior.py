"""Draws from the pooled posterior of variational clients."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from bfl.aggregation.client_models import ClientModels
from bfl.aggregation.samplers.base import Array, Draw, Sampler, samplers


@samplers.register("pooled-posterior")
class PooledPosterior(Sampler):
    """Draws θ ~ q from the pooled posterior, beside its point parameters.

    What FedBE's Gaussian stands in for where clients have no posterior of their own: here the
    spread is that of the clients' posteriors, as the pooling rule makes it, times
    ``sample-scale``.

    Source: Chen and Chao (2021), FedBE, equation (4), with the pool as p(w | D).
    """

    sample_scale: float = Field(
        1.0, ge=0.0, le=1e3, description="multiple of the standard deviation of sampled models"
    )

    def requires(self) -> frozenset[str]:
        """Return that there are Gaussians."""
        return frozenset({"gaussian"})

    def fit(self, models: ClientModels) -> Draw:
        """Return what draws from the pool."""
        pooled = models.average
        deviation = self.sample_scale * np.sqrt(pooled.variance.astype(np.float64))

        def draw(generator: np.random.Generator) -> Array:
            values = pooled.mean + deviation * generator.standard_normal(pooled.size)
            return np.concatenate([values, pooled.point])

        return draw
