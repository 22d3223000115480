"""Optimizers of local training, one file each."""

from bfl.learning.optimizers.base import Optimizer, TrainedVariable, optimizers

__all__ = ["Optimizer", "TrainedVariable", "optimizers"]
