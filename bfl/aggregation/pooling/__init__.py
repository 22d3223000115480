"""Pooling rules: how the clients' Gaussian posteriors become one.

- ``base``: the contract of a rule, and the registry ``pooling_rules``.
- ``clients``: ``pool`` and its kin; ``core``: the one algorithm of all rules; ``validity``: checks.
- every other module: one rule.
"""

from bfl.aggregation.pooling.base import PoolingRule, pooling_rules
from bfl.aggregation.pooling.clients import (
    Client,
    Statistics,
    client_statistics,
    pool,
    pool_weighted,
    pooled_statistics,
)
from bfl.aggregation.pooling.core import CLIPPED, DAMPED_FURTHER, DAMPING, Pooled, normalised

__all__ = [
    "CLIPPED",
    "DAMPED_FURTHER",
    "DAMPING",
    "Client",
    "Pooled",
    "PoolingRule",
    "Statistics",
    "client_statistics",
    "normalised",
    "pool",
    "pool_weighted",
    "pooled_statistics",
    "pooling_rules",
]
