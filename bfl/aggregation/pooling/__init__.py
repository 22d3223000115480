"""Pooling rules: how the clients' Gaussian posteriors become one."""

from bfl.aggregation.pooling.base import (
    CLIPPED_FRACTION,
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
    "CLIPPED_FRACTION",
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
