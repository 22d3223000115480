"""Broadcasts: what of the global posterior the clients of a round are sent.

- ``base``: what a broadcast is, and the registry ``broadcasts``.
- every other module: one broadcast.
"""

from bfl.federation.broadcasts.base import Broadcast, broadcasts

__all__ = ["Broadcast", "broadcasts"]
