"""Members of an ensemble: samples, the average, the clients' models; each can be switched off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from bfl import randomness
from bfl.aggregation.samplers import ClientModels, Sampler
from bfl.posteriors.posterior import Vector
from bfl.registry import Component

LEFT_OUT = "left-out"
"""Name of the number of models left out of an ensemble because their logits are not finite."""


@dataclass(frozen=True)
class Member:
    """One model of an ensemble.

    Attributes:
        name: ``sample-3``, ``average``, ``client-5``.
        values: (D,) values of the Gaussian parameters.
    """

    name: str
    values: Vector
    point: Vector


class EnsembleMembers(Component):
    """The members of an ensemble, for the parts that use one; the keys are the same for all.

    Batch normalisation's moving statistics of sampled members are sampled as all else. One that has
    a least value, a moving variance, is raised to the least that a client has, or to 1/K of the
    pooled one of K clients if that is more, so that it stays positive where one client has none:
    the paper is silent.

    Source: Chen and Chao (2021), FedBE, Algorithm 1 and Table 3; section B.1 for batch
    normalisation.
    """

    ensemble_samples: int = Field(10, ge=0, le=10_000)
    """sampled models in an ensemble, M"""
    ensemble_average: bool = True
    """whether an ensemble has the pooled model"""
    ensemble_clients: bool = True
    """whether an ensemble has the clients' models"""
    client_draws: int = Field(0, ge=0, le=10_000)
    """draws from each client's own posterior that an ensemble has in place of its means; 0: its
    means"""

    def requires(self) -> frozenset[str]:
        """Return that there are variances, where clients' models are drawn."""
        drawn = self.client_draws and self.ensemble_clients
        return super().requires() | ({"clients-to-draw-from"} if drawn else set())

    @field_validator("ensemble_clients")
    @classmethod
    def _some_member(cls, clients: bool, info: ValidationInfo) -> bool:
        other_members = info.data.get("ensemble_samples") or info.data.get("ensemble_average")
        if not clients and not other_members:
            raise ValueError(
                "true, as ensemble-samples is 0 and ensemble-average is False: the ensemble would "
                "have no member"
            )
        return clients

    def members(
        self, models: ClientModels, sampler: Sampler, seed: int, server_round: int
    ) -> Iterator[Member]:
        """Yield samples, drawn by (seed, round, number), average and clients, one at a time."""
        average, manifest = models.average, models.manifest
        if self.ensemble_samples:
            draw = sampler.fit(models)
            for number in range(self.ensemble_samples):
                drawn = draw(randomness.generator(seed, "ensemble", server_round, number))
                values, point = drawn[: average.size], drawn[average.size :].copy()
                if manifest is not None:
                    # No client with a silent channel, or that lies, takes it to 0 for all samples.
                    bounded = manifest.bounded
                    least = np.min([client.point[bounded] for client in models.posteriors], axis=0)
                    share = average.point[bounded] / len(models.posteriors)
                    point[bounded] = np.maximum(point[bounded], np.maximum(least, share))
                sampled = values.astype(np.float32), point.astype(np.float32)
                yield Member(f"sample-{number}", *sampled)
        if self.ensemble_average:
            yield Member("average", average.mean, average.point)
        if not self.ensemble_clients:
            return
        for k, client in zip(models.partition_ids, models.posteriors, strict=True):
            if not (self.client_draws and client.size):
                yield Member(f"client-{k}", client.mean, client.point)
                continue
            deviation = np.sqrt(client.variance.astype(np.float64))
            for number in range(self.client_draws):
                normal = randomness.generator(seed, "client-draws", server_round, k, number)
                values = client.mean + deviation * normal.standard_normal(client.size)
                yield Member(f"client-{k}-draw-{number}", values.astype(np.float32), client.point)
