"""What a sampler is: a distribution over global models, fitted to a round's client models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.aggregation.client_models import ClientModels
from bfl.registry import Component, Registry

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator], Array]
"""Gives one model w ~ p(w | D) as a joined vector (D + P,): means first, then points."""


class Sampler(Component, ABC):
    """A distribution p(w | D) over global models, of which members of an ensemble are drawn.

    Source: Chen and Chao (2021), FedBE, section 3.3.
    """

    @abstractmethod
    def fit(self, models: ClientModels) -> Draw:
        """Return what draws models, given those of a round's clients.

        What it returns draws the same model from generators in the same state.
        """


class WeightedSampler(Sampler):
    """A sampler in which clients count by their sizes, or all the same.

    Attributes:
        around_the_pool: Whether with the pool's weights its mean is the pooled model.
        weighting_alike: The weighting that pools with the same weights, by ``sample-weights``.
    """

    around_the_pool: ClassVar[bool] = True
    weighting_alike: ClassVar[Mapping[str, str]] = {"size": "train-size", "equal": "equal"}

    sample_weights: Literal["size", "equal"] = Field(
        "size", description="how much a client counts in the distribution of sampled models"
    )

    def weights(self, models: ClientModels) -> Array:
        """Return the clients' weights (K,), with sum 1."""
        counts = np.asarray(models.num_examples, np.float64)
        chosen = counts if self.sample_weights == "size" else np.ones_like(counts)
        return np.asarray(chosen / chosen.sum())


samplers: Registry[Sampler] = Registry("sampler", "bfl.aggregation.samplers")
