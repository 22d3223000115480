"""Runs by their configuration: start, resume, training and evaluation.

Their results, which do not depend on configurations, are in ``experiments.results``.

- ``simulation``: a simulation's name, backend and number of clients.
- ``resume``: a run's folder, new or begun, and its checkpoints.
- ``network``: the description of a run's network; a given initial posterior.
- ``trainer``: the trainer of a configuration.
- ``evaluator``: the evaluation of a run's posteriors.

Importing this package does not import TensorFlow; ``evaluator`` does.
"""
