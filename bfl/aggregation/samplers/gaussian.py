"""FedBE's Gaussian over client models."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from bfl.aggregation.client_models import ClientModels, joined
from bfl.aggregation.pooling import pool
from bfl.aggregation.pooling.client_gaussian import ClientGaussianRule
from bfl.aggregation.samplers.base import Array, Draw, WeightedSampler, samplers
from bfl.posteriors import Posterior


@samplers.register("gaussian")
class GaussianSampler(WeightedSampler):
    """A diagonal Gaussian fitted to the clients' models, points and means alike.

    w ~ N(μ, s² diag(Σ_k ω_k (w_k − μ)²)) with μ = Σ_k ω_k w_k, ω_k = |D_k| / |D| and s
    ``sample-scale``, 1 in the paper. The moments are those of the pooling rule
    ``client-gaussian``. The clients' own variances are not read.

    Source: Chen and Chao (2021), FedBE, section 3.3, equation (5).
    """

    sample_scale: float = Field(
        1.0, ge=0.0, le=1e3, description="multiple of the standard deviation of sampled models"
    )

    def fit(self, models: ClientModels) -> Draw:
        """Return what draws from the Gaussian."""
        mean, variance = self.moments(models)
        deviation = self.sample_scale * np.sqrt(variance)
        return lambda generator: mean + deviation * generator.standard_normal(mean.size)

    def moments(self, models: ClientModels) -> tuple[Array, Array]:
        """Return μ and the diagonal of Σ, (D + P,) each, before ``sample-scale``."""
        # The rule pools means, and reads no variance: one vector serves all clients.
        unread = np.ones(joined(models.average).size)
        pooled = pool(
            ClientGaussianRule(dispersion_floor=float(np.finfo(np.float64).tiny)),
            [Posterior(joined(p).astype(np.float64), unread) for p in models.posteriors],
            self.weights(models),
        ).posterior
        return np.asarray(pooled.mean), np.asarray(pooled.variance)
