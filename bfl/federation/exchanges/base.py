"""What an exchange is: how a client's posterior travels, and what the server sees of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from bfl.errors import PosteriorError
from bfl.federation.secure_aggregation.settings import SecureSums
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS
from bfl.registry import Component, Registry

Vectors = Mapping[str, npt.NDArray[Any]]
"""What travels of a posterior: one-dimensional arrays by name."""


class Exchange(Component):
    """Says how clients' updates reach the pool.

    What is pooled, and what parts that keep something on clients reckon with, is what ``unpack``
    makes of what ``pack`` gives: on both sides the same, whatever is lost on the way.
    """

    @property
    def secure_sums(self) -> SecureSums | None:
        """How clients add up their updates, where the server learns sums alone; None: it sees each.

        Sums go by messages of their own (``bfl.federation.secure_aggregation``), and nothing is
        packed.
        """
        return None

    def check_asked(self, asked: int) -> None:
        """Raise if a round needs more clients than so many; by default any number will do.

        Raises:
            ConfigurationError: Saying how many it takes.
        """
        return

    def pack(self, posterior: Posterior, received: Posterior) -> Vectors:
        """Return what a client sends of its posterior.

        Args:
            posterior: The client's posterior.
            received: The one that it was sent.
        """
        return {name: getattr(posterior, name) for name in VECTORS}

    def unpack(self, vectors: Vectors, received: Posterior) -> Posterior:
        """Return the posterior that a client has packed; sizes, types and values are checked after.

        What it raises, of whatever type, refuses the client's update.

        Args:
            vectors: What has come.
            received: The posterior that the client was sent.

        Raises:
            PosteriorError: They are others than ``pack`` gives.
        """
        if set(vectors) != set(VECTORS):
            raise PosteriorError(
                f"the arrays are {', '.join(sorted(vectors)) or 'none'}; expected "
                f"{', '.join(VECTORS)}"
            )
        return Posterior(**vectors)


exchanges: Registry[Exchange] = Registry("exchange", "bfl.federation.exchanges")
