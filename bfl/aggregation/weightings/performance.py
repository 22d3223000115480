"""Weights by how good clients' models are: on the server's own images, or by their own losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.aggregation.server import Labels, ServerRound, labelled_images
from bfl.aggregation.weightings.base import Array, ReportWeighting, ServerWeighting, weightings
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

    accuracy_at: Literal["mean", "draws"] = Field(
        "mean",
        description="whether weights by accuracy evaluate a client's posterior at its mean or by "
        "evaluate-mc-samples draws from it",
    )

    def gamma_on_server(self, posteriors: Sequence[Posterior], server: ServerRound) -> Array:
        """Return the accuracies (K,), or ones if all are 0."""
        _, labels = labelled_images(server.server.data)
        if self.accuracy_at == "draws":
            # One key for all: which draws a client is evaluated by does not depend on its place.
            keyed = ("weighting", server.server_round)
            accuracies = np.array([_by_draws(p, server, labels, keyed) for p in posteriors])
        else:
            found = (server.server.logits_at_mean(p) for p in posteriors)
            accuracies = np.array([_share_correct(logits, labels) for logits in found])
        return accuracies if accuracies.any() else np.ones(len(posteriors))


def _by_draws(
    posterior: Posterior, server: ServerRound, labels: npt.NDArray[np.int64], keyed: Labels
) -> float:
    """Return the share of the images with labels (N,) that draws classify correctly."""
    try:
        predicted = server.server.predict(posterior, labels=keyed).predicted
    except NotFiniteError:
        return 0.0
    return float(np.mean(predicted == labels))


def _share_correct(logits: npt.NDArray[np.floating], labels: npt.NDArray[np.int64]) -> float:
    """Return the share of the images whose logits (N, C) are greatest at their label (N,)."""
    usable = np.isfinite(logits).all(axis=1)
    return float(np.mean(usable & (np.argmax(logits, axis=1) == labels)))


LOSS = "train-negative-log-likelihood"
"""Name under which clients report it."""


@weightings.register("q-fair", aliases=("q-ffl", "q-fedavg"))
class QFair(ReportWeighting):
    """A client's examples times a power of its training loss, ω_k ∝ |D_k| F_k^q.

    F_k is the negative log-likelihood per example, in nats, of the client's last local epoch. With
    these weights the averaged steps are those down the gradient of
    Σ_k |D_k| F_k^{q+1} / (q + 1); q = 0 is ``train-size``. Losses below 0, as densities of numbers
    may have, are refused.

    Source: Li et al. (2020), "Fair resource allocation in federated learning", equation (2) and
    Algorithm 2. Chosen here: the loss while training in place of that before it, and the step to
    the weighted pool in place of the one by Lipschitz constants.
    """

    reads: ClassVar[tuple[str, ...]] = (LOSS,)

    fairness: float = Field(1.0, ge=0.0, le=10.0, description="exponent q of a client's loss")

    def gamma_of_reports(
        self, reports: Sequence[Mapping[str, float]], num_examples: Sequence[int]
    ) -> Array:
        """Return the numbers of examples times powers of the losses, (K,)."""
        losses = np.array([report[LOSS] for report in reports], np.float64)
        # Divided by the greatest, powers neither overflow nor vanish all together.
        relative = losses / losses.max() if losses.any() else np.ones(losses.size)
        return np.asarray(num_examples, np.float64) * relative**self.fairness
