"""Weightings: how much each client counts in the pooling."""

from bfl.aggregation.weightings.base import Equal, Weighting, describe_weights, weightings

__all__ = ["Equal", "Weighting", "describe_weights", "weightings"]
