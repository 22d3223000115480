"""The closing round: sums over clients' data with the final network, and what they tell it.

- ``base``: what a closing is, and how several of them share rounds of sums.
- ``heads``, ``feature_density``, ``conformal``: the closings.
- ``closed``: predictions with what a closing has found.
"""

from bfl.closing.base import Closing, closings
from bfl.closing.closed import Closed

__all__ = ["Closed", "Closing", "closings"]
