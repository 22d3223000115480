"""Settings on which clients and server of a masked exchange have to agree."""

from __future__ import annotations

from dataclasses import dataclass

from bfl.federation.secure_aggregation.neighbours import Neighbourhood
from bfl.federation.secure_aggregation.value_range import ValueRange


@dataclass(frozen=True)
class SecureSums:
    """Settings by which clients add up what the server may only know the sum of.

    Attributes:
        value_range: Which posteriors clients may send.
        neighbourhood: Who exchanges masks with whom, and how many have to stay.
    """

    value_range: ValueRange
    neighbourhood: Neighbourhood
