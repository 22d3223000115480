"""Pooling rules: how the clients' Gaussian posteriors become one.

- ``base``: what a rule is, and the registry ``pooling_rules``.
- ``clients``: ``pool`` and ``pool_weighted``, the pooled posterior of clients.
- ``accumulator``: the same, for who adds clients one by one or sums of other servers.
- ``frame``, ``sums``, ``state``: what both are made of; ``blocks``: parameters taken by blocks.
- ``weights``: clients' weights; ``outcome``: what a rule gives, checked and stored.
- every other module: one rule.
"""

from bfl.aggregation.pooling.accumulator import Accumulator
from bfl.aggregation.pooling.base import PoolingRule, pooling_rules
from bfl.aggregation.pooling.clients import pool, pool_weighted
from bfl.aggregation.pooling.sums import Pooled
from bfl.aggregation.pooling.weights import normalised

__all__ = [
    "Accumulator",
    "Pooled",
    "PoolingRule",
    "normalised",
    "pool",
    "pool_weighted",
    "pooling_rules",
]
