"""Pooling rules: how the clients' Gaussian posteriors become one."""

from bfl.aggregation.pooling.base import (
    CLIPPED_FRACTION,
    DAMPED_FURTHER,
    DAMPING,
    Pooled,
    PoolingRule,
    Statistics,
    Sums,
    check_rule,
    client_statistics,
    normalise,
    pool,
    pool_statistics,
    pooling_rules,
)

__all__ = [
    "CLIPPED_FRACTION",
    "DAMPED_FURTHER",
    "DAMPING",
    "Pooled",
    "PoolingRule",
    "Statistics",
    "Sums",
    "check_rule",
    "client_statistics",
    "normalise",
    "pool",
    "pool_statistics",
    "pooling_rules",
]
