"""Priors of variational clients, one file each: what KL[q ‖ p] in their loss pulls towards."""

from bfl.learning.priors.base import Prior, priors

__all__ = ["Prior", "priors"]
