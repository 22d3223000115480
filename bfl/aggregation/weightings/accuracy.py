"""Weights by the accuracy of the clients' models on the server's own images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bfl.aggregation.server import Server, labelled_images
from bfl.aggregation.weightings.base import Array, ServerWeighting, weightings
from bfl.posteriors.posterior import Posterior


@weightings.register("accuracy", aliases=("abavg",))
class Accuracy(ServerWeighting):
    """A client model's accuracy on the server's own images, normalised: ABAVG.

    ω_k = A_k / Σ A_j with A_k the share of the server's images that client k's model classifies
    correctly. A model is evaluated at its mean, as a network of points without dropout. Logits that
    are not finite classify no image correctly. Where no model classifies any correctly, all have
    the same weight.

    Source: Xiao et al. (2021), "A novel server-side aggregation strategy for federated learning in
    non-IID situations" (ABAVG): weights by the clients' models' validated accuracies. Chosen here:
    that the weight is the accuracy itself, and that a Bayesian model predicts with its mean.
    """

    def gamma_on_server(self, posteriors: Sequence[Posterior], server: Server) -> Array:
        """Return the accuracies (K,), or ones if all are 0."""
        _, labels = labelled_images(server.data)
        accuracies = np.zeros(len(posteriors))
        for k, posterior in enumerate(posteriors):
            logits = server.logits_at_mean(posterior)
            usable = np.isfinite(logits).all(axis=1)
            accuracies[k] = np.mean(usable & (np.argmax(logits, axis=1) == labels))
        return accuracies if accuracies.any() else np.ones(len(posteriors))
