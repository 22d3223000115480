"""What a broadcast is: which of the global posterior's vectors the clients of a round are sent."""

from __future__ import annotations

from typing import ClassVar

from bfl.posteriors.posterior import VECTORS
from bfl.registry import Component, Registry


class Broadcast(Component):
    """Says what of the global posterior the clients of a round are sent.

    Attributes:
        vectors: The names of the vectors that are sent. Clients send all of theirs back.
    """

    vectors: ClassVar[tuple[str, ...]] = VECTORS

    def has(self) -> frozenset[str]:
        """Return whether clients are sent variances."""
        return frozenset({"sent-variances"}) if "variance" in self.vectors else frozenset()


broadcasts: Registry[Broadcast] = Registry("broadcast", "bfl.federation.broadcasts")
