"""Models of a round's clients, held together as the members of ensembles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS, Vector

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ClientModels:
    """The updates of a round that were pooled, with what they began with and what they became.

    What a round's parts get of them has the variances that the network computes with, which a
    posterior's own need not be (``log-variance-clamp``): draws are of the models that were trained.

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
    def size(self) -> int:
        """The number D of Gaussian parameters; in a joined vector they come first."""
        return self.average.size

    @property
    def tensors(self) -> list[slice]:
        """Slices of the network's tensors in a joined vector; one slice if unknown."""
        if self.manifest is None:
            return [slice(0, self.size + self.average.point.size)]
        sizes = [p.size for p in (*self.manifest.gaussian, *self.manifest.point)]
        ends = np.cumsum(sizes)
        return [slice(int(e) - s, int(e)) for e, s in zip(ends, sizes, strict=True)]

    def computing_with(self, used_variance: Callable[[Vector], Vector]) -> ClientModels:
        """Return the models with the variances that a network computes with.

        Args:
            used_variance: Returns those where a posterior has the given ones, (D,) each.
        """

        def used(posterior: Posterior) -> Posterior:
            return replace(posterior, variance=used_variance(posterior.variance))

        return replace(
            self,
            posteriors=tuple(map(used, self.posteriors)),
            previous=used(self.previous),
            average=used(self.average),
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
        """Return the models whose ``to_arrays`` this is.

        Raises:
            KeyError: An array is missing.
        """

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


def joined(posterior: Posterior) -> Vector:
    """Return the means and the point parameters in a row, (D + P,)."""
    if not posterior.size:
        return posterior.point
    return np.concatenate([posterior.mean, posterior.point])
