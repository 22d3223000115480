"""Weightings: how much each client counts in the pooling.

- ``base``: what a weighting is, and the registry ``weightings``.
- every other module: one weighting.
"""

from bfl.weightings.base import Weighting, weightings

__all__ = ["Weighting", "weightings"]
