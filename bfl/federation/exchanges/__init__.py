"""Exchanges: ways of clients' updates to the pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from bfl.posteriors import Posterior
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from bfl.federation.secure_aggregation.accuracy import SecureSums

Vectors = Mapping[str, npt.NDArray[Any]]
"""Vectors of a posterior that travel: one-dimensional arrays by name."""


class Exchange(Component):
    """Way of updates to the pool: both sides use what ``unpack`` makes of ``pack``."""

    @property
    def secure_sums(self) -> SecureSums | None:
        """Settings of secure sums, where the server learns sums alone; None: it sees each update.

        Sums go by messages of their own, and nothing is packed.
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
        """Raise if a round needs more clients than so many; by default any number will do."""

    def pack(self, posterior: Posterior, received: Posterior) -> Vectors:
        """Return what a client sends of its posterior; ``received`` is what it was sent."""
        return {**posterior.vectors()}

    def unpack(self, vectors: Vectors, received: Posterior) -> Posterior:
        """Return the posterior of packed vectors; sizes, types and values are checked after.

        What it raises, of whatever type, refuses the client's update.
        """
        return Posterior.of_vectors(vectors)


exchanges: Registry[Exchange] = Registry("exchange", "bfl.federation.exchanges")


@exchanges.register("direct")
class Direct(Exchange):
    """Each client's posterior as it is, which the server checks and pools."""

    packs: ClassVar[bool] = False
    secure_sums: ClassVar[SecureSums | None] = None
