"""Samplers: distributions over global models, made of the models of a round's clients.

- ``base``: what a sampler is, and the registry ``samplers``.
- every other module: one sampler.
"""

from bfl.aggregation.samplers.base import Draw, Sampler, WeightedSampler, samplers

__all__ = ["Draw", "Sampler", "WeightedSampler", "samplers"]
