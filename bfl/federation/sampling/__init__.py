"""Samplings: which clients take part in a round.

- ``base``: what a sampling is, and the registry ``samplings``.
- every other module: one sampling.
"""

from bfl.federation.sampling.base import Sampling, samplings

__all__ = ["Sampling", "samplings"]
