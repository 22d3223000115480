"""Bayesian federated learning on Flower: pooling posteriors and judging their uncertainty.

The library imports neither ``strategies`` (the server side of Flower) nor ``clients`` (the
client side): both import it. Its numerics are plain NumPy.
"""

__version__ = "0.1.0"
