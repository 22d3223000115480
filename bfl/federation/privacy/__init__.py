"""Basis of differential privacy: an update as one vector, its noise, and the accountant.

- ``difference``: an update's difference from what was received, as one vector and back.
- ``normals``: where random numbers come from; the system's own randomness.
- ``accountant``: ε of so many releases, of all data or of batches drawn in secret.
"""
