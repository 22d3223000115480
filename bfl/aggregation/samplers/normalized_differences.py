"""The Gaussian of FedBE's published code, which is not that of the paper."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bfl.aggregation.client_models import ClientModels, joined
from bfl.aggregation.samplers.base import Array, Draw, WeightedSampler, samplers


@samplers.register("normalized-differences")
class NormalizedDifferences(WeightedSampler):
    """A Gaussian over the directions in which clients have gone, around the previous model.

    Of each tensor, with d_k = w_k − w_previous and u_k = d_k / ‖d_k‖:

        w = w_previous + (Σ_k ‖d_k‖ / K) (ū + s √v ∘ z), z ~ N(0, I),

    ū = Σ_k ω_k u_k, v = max(Σ_k ω_k u_k² − ū², floor), s = ``sample-scale``, floor =
    ``sample-variance-floor``. A tensor that a client has not moved has u_k = 0.

    Source: the code beside Chen and Chao (2021), https://github.com/hongyouc/FedBE, which weights
    clients equally and has s = 0.1 and a floor of 1e-5: the defaults here.
    """

    around_the_pool: ClassVar[bool] = False

    sample_weights: Literal["size", "equal"] = Field(
        "equal", description="how much a client counts in the distribution of sampled models"
    )
    sample_scale: float = Field(
        0.1, ge=0.0, le=1e3, description="multiple of the standard deviation of sampled models"
    )
    sample_variance_floor: float = Field(
        1e-5, ge=0.0, le=1.0, description="least variance of a direction's component"
    )

    def fit(self, models: ClientModels) -> Draw:
        """Return what draws from the Gaussian."""
        previous = joined(models.previous).astype(np.float64)
        centre, deviation = previous.copy(), np.zeros_like(previous)
        weights = self.weights(models)
        for part in models.tensors:
            mean, variance, length = self._directions(models, previous, part, weights)
            centre[part] += length * mean
            deviation[part] = length * self.sample_scale * np.sqrt(variance)
        return lambda generator: centre + deviation * generator.standard_normal(centre.size)

    def _directions(
        self, models: ClientModels, previous: Array, part: slice, weights: Array
    ) -> tuple[Array, Array, float]:
        """Return ū and v of one tensor, and the mean length of its differences."""
        differences = np.stack([joined(p)[part] - previous[part] for p in models.posteriors])
        lengths = np.linalg.norm(differences, axis=1)
        units = differences / np.where(lengths > 0, lengths, 1.0)[:, None]
        mean = weights @ units
        variance = np.maximum(weights @ units**2 - mean**2, self.sample_variance_floor)
        return mean, variance, float(lengths.mean())
