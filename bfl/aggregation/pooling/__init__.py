"""Pooling rules: how the clients' Gaussian posteriors become one.

- ``base``: the contract of a rule, and the registry ``pooling_rules``.
- ``core``: ``pool`` and its kin, the one algorithm of all rules.
- every other module: one rule.
"""

from bfl.aggregation.pooling.base import (
    CLIPPED,
    DAMPED_FURTHER,
    DAMPING,
    Pooled,
    PoolingRule,
    pooling_rules,
)
from bfl.aggregation.pooling.core import (
    Statistics,
    client_statistics,
    normalised,
    pool,
    pooled_statistics,
)

__all__ = [
    "CLIPPED",
    "DAMPED_FURTHER",
    "DAMPING",
    "Pooled",
    "PoolingRule",
    "Statistics",
    "client_statistics",
    "normalised",
    "pool",
    "pooled_statistics",
    "pooling_rules",
]
