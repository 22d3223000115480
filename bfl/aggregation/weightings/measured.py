"""Weights by what is measured: accuracies, losses, and divergences of the clients' models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.aggregation.server import Server, labelled_images
from bfl.aggregation.weightings.base import (
    Array,
    Posteriors,
    ReportWeighting,
    ServerWeighting,
    Weighting,
    weightings,
)
from bfl.posteriors.divergence import divergence, pairwise_divergences
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

    fairness: float = Field(1.0, ge=0.0, le=10.0)
    """exponent q of a client's loss"""

    def gamma_of_reports(
        self, reports: Sequence[Mapping[str, float]], num_examples: Sequence[int]
    ) -> Array:
        """Return the numbers of examples times powers of the losses, (K,)."""
        losses = np.array([report[LOSS] for report in reports], np.float64)
        # Divided by the greatest, powers neither overflow nor vanish all together.
        relative = losses / losses.max() if losses.any() else np.ones(losses.size)
        return np.asarray(num_examples, np.float64) * relative**self.fairness


@weightings.register("distance", aliases=("distance-to-fixed-point",))
class Distance(Weighting):
    """The inverse divergence of the previous global posterior from a client's, normalised.

    γ_k = 1/KL[q_g ‖ q_k], ω_k = γ_k / Σ γ_j, with q_g the previous global posterior: clients that
    stay near it count more.

    Source: Fischer et al. (2024), section 2.6.4, equation (21).
    """

    requires_gaussian: ClassVar[bool] = True
    requires_previous: ClassVar[bool] = True

    def gamma(
        self, posteriors: Posteriors, num_examples: Sequence[int], previous: Posterior | None
    ) -> Array:
        """Return γ up to a common factor, (K,)."""
        if previous is None:
            raise ValueError(f"{self.name} needs the previous global posterior; there is none")
        results = [
            divergence(previous.mean, previous.variance, posterior.mean, posterior.variance)
            for posterior in posteriors
        ]
        return inverse(np.array([max(result) for result in results]))


@weightings.register("max-discrepancy", aliases=("maximum-discrepancy", "max-disc"))
class MaximumDiscrepancy(Weighting):
    """The inverse divergence of a client from the nearest other one, normalised.

    γ_k = max over j ≠ k of 1/KL[q_k ‖ q_j], ω_k = γ_k / Σ γ_j: clients that are extreme compared
    with the others count little. Equation (20) lets j be k, whose divergence is 0; that j is left
    out here.

    Source: Fischer et al. (2024), section 2.6.3, equation (20), after Koliander et al. (2022).
    """

    requires_gaussian: ClassVar[bool] = True

    def gamma(
        self, posteriors: Posteriors, num_examples: Sequence[int], previous: Posterior | None
    ) -> Array:
        """Return γ up to a common factor, (K,); one client has no other and gets 1."""
        if len(posteriors) == 1:
            return np.ones(1)
        values, resolutions = pairwise_divergences(
            [posterior.mean for posterior in posteriors],
            [posterior.variance for posterior in posteriors],
        )
        divergences = np.maximum(values, resolutions)
        np.fill_diagonal(divergences, np.inf)
        return inverse(divergences.min(axis=1))


def inverse(divergences: Array) -> Array:
    """Return 1/KL up to a common factor, (K,), the greatest 1, of divergences above 0 (K,).

    Raised to their resolutions, they give a client that coincides with another one, or with the
    fixed point, a great weight and not an infinite one.
    """
    return np.asarray(divergences.min() / divergences)
