"""The closing round: sums over clients' data with the final network, and what they tell it.

- ``base``: what a closing is, and the registry ``closings``.
- ``chain``: several closings in as few rounds of sums as they take.
- ``closed``: predictions with what a closing has found.
- ``curvature``: how clients send the curvature of the last layer.
- every other module: one closing.
"""

from bfl.closing.base import Closing, closings
from bfl.closing.closed import Closed

__all__ = ["Closed", "Closing", "closings"]
