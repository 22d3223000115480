"""Exchanges: ways of clients' updates to the pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt

from bfl.errors import PosteriorError, public
from bfl.federation.secure_aggregation.messages import SecureSums
from bfl.posteriors import Posterior
from bfl.registry import Component, Registry

Vectors = Mapping[str, npt.NDArray[Any]]
"""Vectors of a posterior that travel: one-dimensional arrays by name."""


class Exchange(Component):
    """Says how clients' updates reach the pool.

    What is pooled, and what parts that keep something on clients use, is what ``unpack``
    makes of what ``pack`` gives: on both sides the same, whatever is lost on the way.
    """

    @property
    def secure_sums(self) -> SecureSums | None:
        """Settings of secure sums, where the server learns sums alone; None: it sees each update.

        Sums go by messages of their own (``bfl.federation.secure_aggregation``), and nothing is
        packed.
        """
        return None

    @property
    def packs(self) -> bool:
        """True if anything but the posterior itself travels."""
        own = type(self)
        return own.pack is not Exchange.pack or own.unpack is not Exchange.unpack

    @property
    def clients_check(self) -> frozenset[str]:
        """The keys of parts of the server's that clients are sent as well, to check what it says.

        Of sums, these are their own weights.
        """
        return frozenset({"weighting"}) if self.secure_sums else frozenset()

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
        return {**posterior.vectors()}

    def unpack(self, vectors: Vectors, received: Posterior) -> Posterior:
        """Return the posterior that a client has packed; sizes, types and values are checked after.

        What it raises, of whatever type, refuses the client's update.

        Args:
            vectors: What has come.
            received: The posterior that the client was sent.

        Raises:
            PosteriorError: They are others than ``pack`` gives.
        """
        return Posterior.of_vectors(vectors)


class _Noted(Mapping[str, npt.NDArray[Any]]):
    """Vectors that note which of them have been looked at."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        vector = self._vectors[name]
        self.seen.add(name)
        return vector

    def __iter__(self) -> Iterator[str]:
        return iter(self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)


def unpacked(exchange: Exchange, vectors: Vectors, received: Posterior) -> Posterior:
    """Return what an exchange unpacks, once it has looked at every vector.

    So nothing travels in an update that no check ever sees, whatever ``pack`` gives.

    Args:
        exchange: The exchange.
        vectors: What was packed.
        received: The posterior that the client was sent.

    Raises:
        PosteriorError: There are vectors that ``unpack`` does not read; or what it raises.
    """
    noted = _Noted(vectors)
    posterior = exchange.unpack(noted, received)
    unread = sorted(vectors.keys() - noted.seen)
    if unread:
        refusal = PosteriorError(
            f"the arrays of an update are {', '.join(sorted(vectors))}, and exchange "
            f"'{exchange.name}' reads no {', '.join(unread)}"
        )
        raise public(refusal)
    return posterior


exchanges: Registry[Exchange] = Registry("exchange", "bfl.federation.exchanges")


@exchanges.register("direct")
class Direct(Exchange):
    """Each client's posterior as it is, which the server checks and pools."""
