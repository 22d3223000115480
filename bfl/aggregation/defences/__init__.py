"""Defences: changes of clients' posteriors before any rule pools them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.posteriors.posterior import VECTORS, Posterior
from bfl.registry import Component, Registry

Vectors = Sequence[npt.NDArray[np.floating]]
Block = npt.NDArray[np.floating]

ENTRIES = 262144
"""Parameters times clients taken at a time: a block and its sorted copy stay in cache."""


class Defence(Component):
    """Change of the clients' posteriors before they are weighted and pooled, by whatever rule."""

    active: ClassVar[bool] = True
    """False if posteriors are pooled as they are sent, so that none waits for the others'."""

    def has(self) -> frozenset[str]:
        """Return whether it changes what clients have sent."""
        return frozenset({"changed-updates"}) if self.active else frozenset()

    @abstractmethod
    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return K posteriors to pool in place of those of one size that K clients have sent."""


def by_blocks(vectors: Vectors, change: Callable[[Block], Block]) -> list[Block]:
    """Return K vectors (D,) after a change of each block (K, B) in view of all clients' values."""
    result = [np.empty_like(vector) for vector in vectors]
    width = max(1, ENTRIES // len(vectors))
    for start in range(0, vectors[0].size, width):
        part = slice(start, start + width)
        changed = change(np.stack([vector[part] for vector in vectors]))
        for vector, row in zip(result, changed, strict=True):
            vector[part] = row
    return result


defences: Registry[Defence] = Registry("defence", "bfl.aggregation.defences")


@defences.register("none")
class NoDefence(Defence):
    """Posteriors are pooled as they are sent."""

    active: ClassVar[bool] = False

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return the posteriors."""
        return list(posteriors)


@defences.register("variance-clamp")
class VarianceClamp(Defence):
    """All clients' variances clamped to [e⁻ᶜ, eᶜ] before they are pooled. Means are as sent.

    Source: the published code of Ozer et al. (2022), which pools log-variances clamped to [−8, 8]
    with every rule but AALV.
    """

    variance_clamp: float = Field(8.0, gt=0.0, le=80.0)
    """c, variances being clamped to [exp(-c), exp(c)]"""

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return the posteriors with variances in the range."""
        low, high = math.exp(-self.variance_clamp), math.exp(self.variance_clamp)
        return [Posterior(p.mean, np.clip(p.variance, low, high), p.point) for p in posteriors]


@defences.register("variance-floor")
class VarianceFloor(Defence):
    """No variance below a share of the clients' median variance of that parameter.

    It takes from a client that claims an absurd certainty the power over rules that weight by the
    inverse variance: with a floor of 0.1 a client counts at most ten times the median one. Means
    are as sent.

    Source: none known; the median of a coordinate is that of Yin et al. (2018), "Byzantine-robust
    distributed learning", Definition 1.
    """

    variance_floor: float = Field(0.1, gt=0.0, le=1.0)
    """least variance, as a share of the clients' median"""

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return the posteriors with no variance below the floor."""
        if not posteriors or not posteriors[0].size:
            return list(posteriors)
        count = len(posteriors)

        def raise_to_floor(block: Block) -> Block:
            ordered = np.sort(block, axis=0)
            # Halved before they are added, so that two large variances do not overflow.
            median = 0.5 * ordered[(count - 1) // 2] + 0.5 * ordered[count // 2]
            return np.asarray(np.maximum(block, self.variance_floor * median))

        variances = by_blocks([p.variance for p in posteriors], raise_to_floor)
        return [Posterior(p.mean, v, p.point) for p, v in zip(posteriors, variances, strict=True)]


@defences.register("winsorization", aliases=("winsorisation", "trimming"))
class Winsorization(Defence):
    """The t least and t greatest values of each coordinate are moved to the nearest of the rest.

    t = ⌈hostile-fraction · K⌉, at most (K − 1) / 2, where all values become the median. With at
    most t hostile clients every mean, variance and point value that reaches the rule lies between
    those of honest clients, whatever was sent; so does what any rule makes of them that stays
    between its inputs. It is the trimmed mean of Yin et al. with the trimmed values moved instead
    of dropped, so that each client keeps its weight and the rule need not know.

    Source: Yin et al. (2018), "Byzantine-robust distributed learning", Definition 2; Dixon and
    Tukey (1968) for moving in place of dropping.
    """

    hostile_fraction: float = Field(0.2, ge=0.0, le=0.5)
    """share of the clients that may be hostile"""

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return the posteriors with each coordinate's extremes moved inwards."""
        count = len(posteriors)
        moved = min(math.ceil(self.hostile_fraction * count - 1e-9), (count - 1) // 2)
        if moved <= 0:
            return list(posteriors)

        def move_inwards(block: Block) -> Block:
            ordered = np.sort(block, axis=0)
            return np.clip(block, ordered[moved], ordered[-1 - moved])

        vectors = [
            by_blocks([getattr(p, name) for p in posteriors], move_inwards) for name in VECTORS
        ]
        return [Posterior(*parts) for parts in zip(*vectors, strict=True)]
