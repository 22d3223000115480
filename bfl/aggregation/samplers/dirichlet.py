"""FedBE's Dirichlet over convex combinations of client models."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from bfl.aggregation.client_models import ClientModels, joined
from bfl.aggregation.samplers.base import Array, Draw, WeightedSampler, samplers


@samplers.register("dirichlet")
class DirichletSampler(WeightedSampler):
    """Random weighted averages of the clients' models, points and means alike.

    w = Σ_k γ_k |D_k| w_k / Σ_k γ_k |D_k| with γ ~ Dir(α, ..., α), α being ``sample-alpha``. With
    ``sample-weights`` = "equal" it is Σ_k γ_k w_k, as in the authors' code.

    Source: Chen and Chao (2021), FedBE, section 3.3, equation (7); α in Table 7.
    """

    sample_alpha: float = Field(
        1.0, gt=0.0, le=1e6, description="concentration of the Dirichlet over client models"
    )

    def fit(self, models: ClientModels) -> Draw:
        """Return what draws from the combinations."""
        clients = [joined(posterior) for posterior in models.posteriors]

        def draw(generator: np.random.Generator) -> Array:
            total = np.zeros(clients[0].size)
            for share, client in zip(self.shares(models, generator), clients, strict=True):
                total += share * client
            return total

        return draw

    def shares(self, models: ClientModels, generator: np.random.Generator) -> Array:
        """Return the shares (K,) of the clients in one draw, with sum 1."""
        weights = self.weights(models)
        gamma = generator.dirichlet(np.full(weights.size, self.sample_alpha))
        # So small an α that all of the mass lies with one client, and may underflow elsewhere.
        products = gamma * weights
        return np.asarray(products / products.sum())
