"""Distillation on the server: a student trained on soft labels of the server's own images.

- ``plan``: the steps: rates, and which models are averaged. NumPy alone.
- ``distiller``: the training itself, traced once for all rounds.
- ``statistics``: batch normalisation's statistics of given images.
- ``server``: the server's data and network together.

Importing this package does not import TensorFlow; the last three do.
"""

from bfl.learning.distillation.plan import DistillationPlan

__all__ = ["DistillationPlan"]
