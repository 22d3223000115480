"""Weightings: how much each client counts in the pooling.

- ``base``: what a weighting is, and the registry ``weightings``.
- every other module: weightings.
"""

from bfl.aggregation.weightings.base import Weighting, describe_weights, weightings

__all__ = ["Weighting", "describe_weights", "weightings"]
