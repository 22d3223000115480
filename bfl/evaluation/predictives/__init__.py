"""Predictives: what predicts when a round is evaluated.

- ``base``: what a predictive is, and the registry ``predictives``.
- every other module: one predictive.
"""

from bfl.evaluation.predictives.base import Predictive, predictives

__all__ = ["Predictive", "predictives"]
