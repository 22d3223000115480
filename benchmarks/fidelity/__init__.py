"""Fidelity of posteriors: what pooling makes of clients' posteriors, beside the exact one.

- ``problems``: likelihoods whose posterior is known, and Gaussian fits to them.
- ``network``: a small network, whose predictions are compared.
- ``methods``: every pooling rule and partitioned variational inference.
- ``comparison``: the numbers of each method beside the reference.
"""
