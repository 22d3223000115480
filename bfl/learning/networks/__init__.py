"""Architectures built with an inference: Keras models whose weights are a posterior's vectors.

- ``network``: the built network.
- ``layers``: Keras layers with keyed randomness, and how one key gives many.
- ``parametrizations``: what stands for the variances.
"""
