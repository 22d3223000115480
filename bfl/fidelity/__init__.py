"""Fidelity of posteriors: what pooling makes of clients' posteriors, beside the exact one.

- ``problems``: likelihoods whose posterior is known, and Gaussian fits to them.
- ``methods``: every pooling rule, partitioned variational inference, and the closing round, by the
  numbers of each beside the reference.
"""
