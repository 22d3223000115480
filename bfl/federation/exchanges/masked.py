"""Clients send what is masked, and the server learns the sum of a rule's statistics alone."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from bfl.errors import ConfigurationError
from bfl.federation.exchanges import Exchange, exchanges
from bfl.federation.secure_aggregation.accuracy import SecureSums, ValueRange
from bfl.federation.secure_aggregation.masking import FEWEST_CLIENTS, Neighbourhood


@exchanges.register("masked", aliases=("secure-aggregation",))
class Masked(Exchange):
    """Sums of masked statistics: the server learns what it pools, and no client's posterior.

    Clients send their rule's statistics as whole numbers modulo 2⁶⁴, each with masks that only the
    sum over all clients is free of. The range of values is agreed on first: who is outside of it
    fails.

    Source: Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine
    learning"; Bell et al. (2020) for neighbours in place of all pairs.
    """

    always_has: ClassVar[frozenset[str]] = frozenset({"unseen-updates", "secret-measurements"})
    always_requires: ClassVar[frozenset[str]] = frozenset({"sums", "weights-by-counts"})
    always_excludes: ClassVar[frozenset[str]] = frozenset(
        {"changed-updates", "single-models", "sent-beside", "evaluated-by-clients", "pre-training"}
    )

    masked_reach: float = Field(
        16.0, gt=0.0, le=1e6, description="how far a client's mean may be from the one it was sent"
    )
    masked_least_deviation: float = Field(
        5e-6, gt=0.0, le=1.0, description="least standard deviation that a client may send"
    )
    masked_greatest_deviation: float = Field(
        4.0, ge=1e-3, le=1e6, description="greatest standard deviation that a client may send"
    )
    masked_greatest_point: float = Field(
        1e6, gt=0.0, le=1e12, description="greatest absolute value of a client's point parameter"
    )
    masked_neighbours: int = Field(
        30,
        ge=10,
        le=1000,
        multiple_of=2,
        description="how many others a client exchanges masks with; all, if there are no more",
    )
    masked_threshold: float = Field(
        2 / 3,
        gt=0.0,
        le=1.0,
        description="share of a client and its neighbours that must stay to the end of a round; "
        "more than half always must",
    )

    @property
    def secure_sums(self) -> SecureSums:
        """Return the range of values that is agreed on, and who exchanges masks with whom."""
        return SecureSums(
            ValueRange(
                self.masked_reach,
                self.masked_least_deviation,
                self.masked_greatest_deviation,
                self.masked_greatest_point,
            ),
            Neighbourhood(self.masked_neighbours, self.masked_threshold),
        )

    def check_asked(self, asked: int) -> None:
        """Raise if so few clients are asked in a round that a sum of their updates hides none."""
        if asked < FEWEST_CLIENTS:
            raise ConfigurationError(
                f"exchange '{self.name}': the server learns sums alone, and of {asked} clients a "
                "round one that knows its own update knows the other's; allowed: at least "
                f"{FEWEST_CLIENTS} (fraction-train), or exchange='direct'"
            )
