"""A run as it is configured: started, named, gone on with, trained and evaluated.

What it leaves behind, which knows nothing of configurations, is ``experiments.results``.

- ``simulation``: what a simulation is started with, and what is refused before.
- ``resume``: a run's folder, new or begun, and its checkpoints.
- ``network``: what predicting with a run's posterior takes besides; the posterior it begins with.
- ``trainer``: the trainer that a configuration describes.
- ``evaluator``: what evaluates a run's posteriors.

Importing this package does not import TensorFlow; ``evaluator`` does.
"""
