"""Pooling rules: how the clients' Gaussian posteriors become one.

- ``base``: what a rule is, and the registry ``pooling_rules``.
- ``accumulator``: the sums over clients, and ``pool`` and ``pool_weighted``.
- every other module: one rule.
"""

from bfl.aggregation.pooling.accumulator import Accumulator, Pooled, normalised, pool, pool_weighted
from bfl.aggregation.pooling.base import PoolingRule, pooling_rules

__all__ = [
    "Accumulator",
    "Pooled",
    "PoolingRule",
    "normalised",
    "pool",
    "pool_weighted",
    "pooling_rules",
]
