"""Exchanges: how clients' updates reach the pool.

- ``base``: what an exchange is, and the registry ``exchanges``.
- every other module: one exchange.
"""

from bfl.federation.exchanges.base import Exchange, exchanges, unpacked

__all__ = ["Exchange", "exchanges", "unpacked"]
