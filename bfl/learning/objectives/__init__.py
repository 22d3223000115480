"""Objectives: what local training makes small, as a sum of terms.

- ``base``: what a term is and what it sees of a step, and the registry ``objectives``.
- every other module: one term.
"""

from bfl.learning.objectives.base import SoftLabels, Step, Term, Value, objectives

__all__ = ["SoftLabels", "Step", "Term", "Value", "objectives"]
