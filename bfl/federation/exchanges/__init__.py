"""Exchanges: ways of clients' updates to the pool."""

from __future__ import annotations

from typing import ClassVar

from bfl.errors import ConfigurationError
from bfl.registry import Component, Registry

FEWEST_CLIENTS = 3
"""Least number of clients in a sum: of two, each knows the other's update from it and its own."""


class Exchange(Component):
    """Way of updates to the pool.

    Attributes:
        secure_sums: Whether the server learns sums alone, by messages of their own.
        clients_check: The keys of parts of the server's that clients are sent as well, to check
            what it says: of sums, their own weights.
    """

    secure_sums: ClassVar[bool] = False
    clients_check: ClassVar[frozenset[str]] = frozenset()

    def check_selected(self, selected: int) -> None:
        """Raise if a round has so few clients that a sum of their updates hides none."""
        if self.secure_sums and selected < FEWEST_CLIENTS:
            raise ConfigurationError(
                f"exchange '{self.name}': the server learns sums alone, and of {selected} clients "
                "a round one that knows its own update knows the other's; allowed: at least "
                f"{FEWEST_CLIENTS} (fraction-train), or exchange='direct'"
            )


exchanges: Registry[Exchange] = Registry("exchange", "bfl.federation.exchanges")


@exchanges.register("direct")
class Direct(Exchange):
    """Each client's posterior as it is, which the server checks and pools."""


@exchanges.register("masked", aliases=("secure-aggregation",))
class Masked(Exchange):
    """Sums of masked statistics: the server learns what it pools, and no client's posterior.

    Clients send their rule's statistics as whole numbers modulo 2⁶⁴, each with masks that only the
    sum over all clients is free of. Who is outside of the range of values that these hold fails.

    Source: Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine
    learning"; Bell et al. (2020) for neighbours in place of all pairs.
    """

    always_has: ClassVar[frozenset[str]] = frozenset({"unseen-updates", "secret-measurements"})
    always_requires: ClassVar[frozenset[str]] = frozenset({"sums", "weights-by-counts"})
    always_excludes: ClassVar[frozenset[str]] = frozenset(
        {"changed-updates", "single-models", "sent-beside", "evaluated-by-clients", "pre-training"}
    )
    secure_sums: ClassVar[bool] = True
    clients_check: ClassVar[frozenset[str]] = frozenset({"weighting"})
