"""Weights by the accuracy of the clients' models on the server's own images."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import numpy as np

from bfl.aggregation.server import ServerRound, labelled_images
from bfl.aggregation.weightings.base import Array, ServerWeighting, weightings
from bfl.errors import NotFiniteError
from bfl.posteriors.posterior import Posterior


@weightings.register("accuracy", aliases=("abavg",))
class Accuracy(ServerWeighting):
    """A client model's accuracy on the server's own images, normalised: ABAVG.

    ω_k = A_k / Σ A_j with A_k the share of the server's images that client k's model classifies
    correctly. A model is evaluated at its mean, as a network of points without dropout, or by draws
    from it (``accuracy-at``), the same for all clients. Of logits that are not finite none is
    correct: at its mean those of an image; a model of which a draw has any classifies no image
    correctly. Where no model classifies any correctly, all have the same weight.

    Source: Xiao et al. (2021), "A novel server-side aggregation strategy for federated learning in
    non-IID situations" (ABAVG): weights by the clients' models' validated accuracies. Chosen here:
    that the weight is the accuracy itself, and what a Bayesian model predicts with.
    """

    accuracy_at: Literal["mean", "draws"] = "mean"
    """whether weights by accuracy evaluate a client's posterior at its mean or by
    evaluate-mc-samples draws from it"""

    def gamma_on_server(self, posteriors: Sequence[Posterior], server: ServerRound) -> Array:
        """Return the accuracies (K,), or ones if all are 0."""
        _, labels = labelled_images(server.server.data)
        accuracies = np.zeros(len(posteriors))
        for k, posterior in enumerate(posteriors):
            if self.accuracy_at == "mean":
                logits = server.server.logits_at_mean(posterior)
                usable = np.isfinite(logits).all(axis=1)
                accuracies[k] = np.mean(usable & (np.argmax(logits, axis=1) == labels))
                continue
            # One key for all: which draws a client is evaluated by does not depend on its place.
            keyed = ("weighting", server.server_round)
            with suppress(NotFiniteError):
                predictions = server.server.predict(posterior, labels=keyed)
                accuracies[k] = np.mean(predictions.predicted == labels)
        return accuracies if accuracies.any() else np.ones(len(posteriors))
