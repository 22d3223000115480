"""Architectures built with an inference: Keras models whose weights are a posterior's vectors.

- ``network``: the built network.
- ``layers``: Keras layers with keyed randomness.
- ``parameters``: the Keras variables behind one entry of a manifest.
"""
