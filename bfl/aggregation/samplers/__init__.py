"""Samplers: distributions over global models, fitted to a round's client models held together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.aggregation.pooling import pool
from bfl.aggregation.pooling.linear_pool import ClientGaussianRule
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS, Vector
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
        """Return a function that draws one model from a generator, fitted to a round's models."""


class WeightedSampler(Sampler):
    """A sampler in which clients count by their sizes, or all the same."""

    sample_weights: Literal["size", "equal"] = "size"
    """how much a client counts in the distribution of sampled models"""

    def weights(self, models: ClientModels) -> Array:
        """Return the clients' weights (K,), with sum 1."""
        counts = np.asarray(models.num_examples, np.float64)
        chosen = counts if self.sample_weights == "size" else np.ones_like(counts)
        return np.asarray(chosen / chosen.sum())


samplers: Registry[Sampler] = Registry("sampler", "bfl.aggregation.samplers")


@samplers.register("dirichlet")
class DirichletSampler(WeightedSampler):
    """Random weighted averages of the clients' models, points and means alike.

    w = Σ_k γ_k |D_k| w_k / Σ_k γ_k |D_k| with γ ~ Dir(α, ..., α), α being ``sample-alpha``. With
    ``sample-weights`` = "equal" it is Σ_k γ_k w_k, as in the authors' code.

    Source: Chen and Chao (2021), FedBE, section 3.3, equation (7); α in Table 7.
    """

    sample_alpha: float = Field(1.0, gt=0.0, le=1e6)
    """concentration of the Dirichlet over client models"""

    def fit(self, models: ClientModels) -> Draw:
        """Return what draws from the combinations."""
        clients = [join_values(posterior) for posterior in models.posteriors]

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


@samplers.register("gaussian")
class GaussianSampler(WeightedSampler):
    """A diagonal Gaussian fitted to the clients' models, points and means alike.

    w ~ N(μ, s² diag(Σ_k ω_k (w_k − μ)²)) with μ = Σ_k ω_k w_k, ω_k = |D_k| / |D| and s
    ``sample-scale``, 1 in the paper. The moments are those of the pooling rule
    ``client-gaussian``. The clients' own variances are not read.

    Source: Chen and Chao (2021), FedBE, section 3.3, equation (5).
    """

    sample_scale: float = Field(1.0, ge=0.0, le=1e3)
    """multiple of the standard deviation of sampled models"""

    def fit(self, models: ClientModels) -> Draw:
        """Return what draws from the Gaussian."""
        mean, variance = self.moments(models)
        deviation = self.sample_scale * np.sqrt(variance)
        return lambda generator: mean + deviation * generator.standard_normal(mean.size)

    def moments(self, models: ClientModels) -> tuple[Array, Array]:
        """Return μ and the diagonal of Σ, (D + P,) each, before ``sample-scale``."""
        # The rule pools means, and reads no variance: one vector serves all clients.
        unread = np.ones(join_values(models.average).size)
        pooled = pool(
            ClientGaussianRule(dispersion_floor=float(np.finfo(np.float64).tiny)),
            [Posterior(join_values(p).astype(np.float64), unread) for p in models.posteriors],
            self.weights(models),
        ).posterior
        return np.asarray(pooled.mean), np.asarray(pooled.variance)


@samplers.register("normalized-differences")
class NormalizedDifferences(WeightedSampler):
    """A Gaussian over the directions in which clients have gone, around the previous model.

    Of each tensor, with d_k = w_k − w_previous and u_k = d_k / ‖d_k‖:

        w = w_previous + (Σ_k ‖d_k‖ / K) (ū + s √v ∘ z), z ~ N(0, I),

    ū = Σ_k ω_k u_k, v = max(Σ_k ω_k u_k² − ū², 1e-5), s = ``sample-scale``. A tensor that a client
    has not moved has u_k = 0.

    Source: the code of Chen and Chao (2021), https://github.com/hongyouc/FedBE, which weights
    clients equally and has s = 0.1, the defaults here, and that floor.
    """

    sample_weights: Literal["size", "equal"] = "equal"
    """how much a client counts in the distribution of sampled models"""
    sample_scale: float = Field(0.1, ge=0.0, le=1e3)
    """multiple of the standard deviation of sampled models"""

    def fit(self, models: ClientModels) -> Draw:
        """Return what draws from the Gaussian."""
        previous = join_values(models.previous).astype(np.float64)
        centre, deviation = previous.copy(), np.zeros_like(previous)
        weights = self.weights(models)
        for part in models.tensors:
            differences = np.stack(
                [join_values(p)[part] - previous[part] for p in models.posteriors]
            )
            lengths = np.linalg.norm(differences, axis=1)
            units = differences / np.where(lengths > 0, lengths, 1.0)[:, None]
            mean = weights @ units
            variance = np.maximum(weights @ units**2 - mean**2, 1e-5)
            centre[part] += lengths.mean() * mean
            deviation[part] = lengths.mean() * self.sample_scale * np.sqrt(variance)
        return lambda generator: centre + deviation * generator.standard_normal(centre.size)


@samplers.register("pooled-posterior")
class PooledPosterior(Sampler):
    """Draws θ ~ q from the pooled posterior, besides its point parameters.

    What FedBE's Gaussian stands in for where clients have no posterior of their own: here the
    spread is that of the clients' posteriors, as the pooling rule makes it, times
    ``sample-scale``.

    Source: Chen and Chao (2021), FedBE, equation (4), with the pool as p(w | D).
    """

    always_requires: ClassVar[frozenset[str]] = frozenset({"gaussian"})

    sample_scale: float = Field(1.0, ge=0.0, le=1e3)
    """multiple of the standard deviation of sampled models"""

    def fit(self, models: ClientModels) -> Draw:
        """Return what draws from the pool."""
        pooled = models.average
        deviation = self.sample_scale * np.sqrt(pooled.variance.astype(np.float64))

        def draw(generator: np.random.Generator) -> Array:
            values = pooled.mean + deviation * generator.standard_normal(pooled.size)
            return np.concatenate([values, pooled.point])

        return draw


Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ClientModels:
    """The updates of a round that were pooled, with what they began with and what they became.

    Variances are those that the network computes with (``log-variance-clamp``).

    Attributes:
        posteriors: The K clients' posteriors as they were pooled, in the order of partition ids.
        previous: The global posterior that they were sent.
        average: What they were pooled to, after the server's step.
        manifest: The parameters of the network; None where the server does not know them.
    """

    posteriors: Sequence[Posterior]
    partition_ids: Sequence[int]
    num_examples: Sequence[int]
    previous: Posterior
    average: Posterior
    manifest: Manifest | None = None

    @property
    def tensors(self) -> list[slice]:
        """Slices of the network's tensors in a joined vector; one slice if unknown."""
        if self.manifest is None:
            return [slice(0, self.average.size + self.average.point.size)]
        sizes = [p.size for p in (*self.manifest.gaussian, *self.manifest.point)]
        ends = np.cumsum(sizes)
        return [slice(int(e) - s, int(e)) for e, s in zip(ends, sizes, strict=True)]

    def transform_variances(self, used_variance: Callable[[Vector], Vector]) -> ClientModels:
        """Return the models with the variances that a network computes with, given theirs."""

        def transform(posterior: Posterior) -> Posterior:
            return replace(posterior, variance=used_variance(posterior.variance))

        return replace(
            self,
            posteriors=tuple(map(transform, self.posteriors)),
            previous=transform(self.previous),
            average=transform(self.average),
        )

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all but the manifest as arrays by name, for checkpoints."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "partition-ids": np.asarray(self.partition_ids, np.int64),
            "num-examples": np.asarray(self.num_examples, np.int64),
        }
        for name in VECTORS:
            arrays[f"clients.{name}"] = np.stack([getattr(p, name) for p in self.posteriors])
            arrays[f"previous.{name}"] = getattr(self.previous, name)
            arrays[f"average.{name}"] = getattr(self.average, name)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, manifest: Manifest | None) -> ClientModels:
        """Return the models whose ``to_arrays`` this is; KeyError: an array is missing."""

        def posterior(owner: str, index: Any = ...) -> Posterior:
            return Posterior(**{name: arrays[f"{owner}.{name}"][index] for name in VECTORS})

        count = len(arrays["partition-ids"])
        return cls(
            posteriors=tuple(posterior("clients", k) for k in range(count)),
            partition_ids=tuple(map(int, arrays["partition-ids"])),
            num_examples=tuple(map(int, arrays["num-examples"])),
            previous=posterior("previous"),
            average=posterior("average"),
            manifest=manifest,
        )


def join_values(posterior: Posterior) -> Vector:
    """Return the means and the point parameters in a row, (D + P,)."""
    if not posterior.size:
        return posterior.point
    return np.concatenate([posterior.mean, posterior.point])
