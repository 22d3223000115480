"""Refinements: what the server does beyond pooling, with data of its own.

- ``base``: what a refinement is, and the registry ``refinements``.
- ``plan``: the steps of a distillation: rates, and which models are averaged.
- every other module: one refinement.
"""

from bfl.aggregation.refinements.base import Refined, Refinement, refinements

__all__ = ["Refined", "Refinement", "refinements"]
