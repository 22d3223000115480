"""Refinements: what the server does beyond pooling, with data of its own.

- ``base``: what a refinement is, and the registry ``refinements``.
- every other module: one refinement.
"""

from bfl.aggregation.refinements.base import Refined, Refinement, refinements

__all__ = ["Refined", "Refinement", "refinements"]
