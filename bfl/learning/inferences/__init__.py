"""Inferences: how a network's weights are learned and used; one file each."""

from bfl.learning.inferences.base import Inference, inferences

__all__ = ["Inference", "inferences"]
