"""What is done to an update on its way out of a client; one file each, several in a chain.

``outgoing="clip+noise"`` is differential privacy of whole clients, see docs/privacy.md.
"""

from bfl.federation.outgoing.base import Outgoing, outgoing_parts
from bfl.federation.outgoing.chain import (
    is_private,
    length_problem,
    noised_pool,
    order_problem,
    sent,
)

__all__ = [
    "Outgoing",
    "is_private",
    "length_problem",
    "noised_pool",
    "order_problem",
    "outgoing_parts",
    "sent",
]
