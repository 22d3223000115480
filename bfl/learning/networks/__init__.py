"""Architectures built with an inference: Keras models whose weights are a posterior's vectors.

- ``network``: the built network.
- ``keys``: keys of random operations, and how one gives many.
- ``layers``: Keras layers with keyed randomness.
- ``parameters``: the Keras variables behind one entry of a manifest.
"""
