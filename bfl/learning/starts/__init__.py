"""Starts: where a client's optimizer begins in a round.

- ``base``: what a start is, and the registry ``starts``.
- every other module: one start.
"""

from bfl.learning.starts.base import Start, starts

__all__ = ["Start", "starts"]
