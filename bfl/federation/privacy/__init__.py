"""Basis of differential privacy: an update as one vector, its noise, and the accountant.

- ``noise``: an update's difference from what was received, as one vector and back, and the random
  numbers that it takes, of the system's own randomness.
- ``accountant``: ε of so many releases, of all data or of batches drawn in secret.
"""
