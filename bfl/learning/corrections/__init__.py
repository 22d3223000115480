"""Corrections: what is added to the gradient of every local step.

- ``base``: what a correction is, and the registry ``corrections``.
- every other module: one correction.
"""

from bfl.learning.corrections.base import Correction, corrections

__all__ = ["Correction", "corrections"]
