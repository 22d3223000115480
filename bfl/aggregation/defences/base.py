"""What a defence is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from bfl.posteriors import Posterior
from bfl.registry import Component, Registry

Vectors = Sequence[npt.NDArray[np.floating]]
Block = npt.NDArray[np.floating]

ENTRIES = 262144
"""Parameters times clients taken at a time: a block and its sorted copy stay in cache."""


class Defence(Component):
    """What is done to the clients' posteriors before they are weighted and pooled.

    It changes posteriors and leaves the rule alone, so every defence goes with every rule.
    """

    @property
    def idle(self) -> bool:
        """Whether posteriors are pooled as they are sent, so that none waits for the others'."""
        return False

    def has(self) -> frozenset[str]:
        """Return whether it changes what clients have sent."""
        return frozenset() if self.idle else frozenset({"changed-updates"})

    @abstractmethod
    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return K posteriors to pool in place of those that K clients have sent.

        Args:
            posteriors: K posteriors of one size, checked.
        """


def by_blocks(vectors: Vectors, change: Callable[[Block], Block]) -> list[Block]:
    """Return K vectors of which each coordinate is changed in view of all clients' values of it.

    Besides the vectors returned it needs memory for one block, however many clients there are.

    Args:
        vectors: K vectors (D,), at least one.
        change: Returns the new values of a block (K, B); it may change the block in place.
    """
    result = [np.empty_like(vector) for vector in vectors]
    width = max(1, ENTRIES // len(vectors))
    for start in range(0, vectors[0].size, width):
        part = slice(start, start + width)
        changed = change(np.stack([vector[part] for vector in vectors]))
        for vector, row in zip(result, changed, strict=True):
            vector[part] = row
    return result


defences: Registry[Defence] = Registry("defence", "bfl.aggregation.defences")
