"""Pooling rules: how the clients' Gaussian posteriors become one."""

from bfl.aggregation.pooling.base import (
    CLIPPED_FRACTION,
    DAMPING,
    Pooled,
    PoolingRule,
    Sums,
    check_rule,
    normalise,
    pool,
    pool_statistics,
    pooling_rules,
)

__all__ = [
    "CLIPPED_FRACTION",
    "DAMPING",
    "Pooled",
    "PoolingRule",
    "Sums",
    "check_rule",
    "normalise",
    "pool",
    "pool_statistics",
    "pooling_rules",
]
