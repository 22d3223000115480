"""Distillation on the server: a student trained on soft labels of the server's own images.

- ``distiller``: the training itself, traced once for all rounds.
- ``statistics``: batch normalisation's statistics of given images.

What is to be learnt, and in which steps, is in ``bfl.aggregation.refinements``; who has the images
and the network, in ``bfl.experiments.run.server``.
"""
