"""The server of Bayesian ADMM, the alternating direction method of multipliers on posteriors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.aggregation.server_optimizers import (
    NoServerOptimizer,
    State,
    StepContext,
    server_optimizers,
)
from bfl.posteriors.posterior import NaturalParameters, Posterior, greatest_step

LEAST_PRECISION_SHARE = 0.1  # of the clients' mean precision that a round leaves every parameter


@server_optimizers.register("bayesian-admm")
class BayesianAdmm(NoServerOptimizer):
    """A step between the clients' mean natural parameters and the prior's with all duals added.

    Clients keep duals v_k (prior ``duals``). With λ = (Λμ, Λ), λ₀ of the prior, λ_g of what was
    sent, and λ_k of the K clients pooled:

        v_k ← v_k + γ ρ (λ_k − λ_g)
        λ_g ← (1 − α) Σ_k λ_k / K + α (λ₀ + Σ v_k), with α = 1 / (1 + ρ K)

    The sum of the duals is over all clients. What the server keeps is λ₀ + Σ v_k; before the first
    round that is the global posterior. Where clients agree with what they were sent, it is the
    global posterior: the prior times the clients' factors, as in partitioned variational inference.
    Of quadratic losses, the first round ends there if ρ = 1/K and γ = 1.

    A client makes small E_q[ℓ_k] + ⟨v_k, ·⟩ + ρ KL[q ‖ q_g], so ``temperature`` is to be ρ. Smaller
    by a factor τ it raises the likelihood to 1/τ. Where a step would leave some parameter less than
    a tenth of its mean precision, α is smaller, for all parameters. Point values are averaged.

    Source: Möllenhoff et al. (2026), "Federated ADMM from Bayesian duality", Fig. 2 for v, ρ and α;
    their code, ``bayes_admm_diagonalcov``, for γ.
    """

    active: ClassVar[bool] = True
    always_requires: ClassVar[frozenset[str]] = frozenset(
        {"duals", "averaged-precisions", "uniform-weights"}
    )
    always_excludes: ClassVar[frozenset[str]] = frozenset(
        {"changed-updates", "pre-training", "given-start"}
    )

    admm_penalty: float = Field(1.0, gt=0.0, le=1e3)
    """ρ, how firmly clients are held near what they have received; temperature is to be as much"""
    dual_damping: float = Field(1.0, gt=0.0, le=1.0)
    """γ, share of its step that a client's dual makes in a round"""

    def has(self) -> frozenset[str]:
        """Return that it sums the duals, as well."""
        return super().has() | {"summed-duals"}

    def apply(
        self,
        state: State,
        previous: Posterior,
        pooled: Posterior,
        context: StepContext,
        *,
        moves_point: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[State, Posterior]:
        """Return the prior's natural parameters with all duals added, and the posterior sent next.

        ``pooled`` has the mean of the clients' natural parameters.
        """
        sent = NaturalParameters.of(previous.mean, previous.variance)
        mean = NaturalParameters.of(pooled.mean, pooled.variance)
        before = NaturalParameters(state["weighted-mean"], state["precision"]) if state else sent
        penalties = self.admm_penalty * context.pooled  # ρ K
        summed = before + self.dual_damping * penalties * (mean - sent)
        room = greatest_step(
            mean.precision, summed.precision - mean.precision, LEAST_PRECISION_SHARE
        )
        alpha = min(1.0 / (1.0 + penalties), room)
        means, variances = ((1.0 - alpha) * mean + alpha * summed).moments()
        kept = {"weighted-mean": summed.weighted_mean, "precision": summed.precision}
        return kept, Posterior(
            means.astype(pooled.mean.dtype), variances.astype(pooled.variance.dtype), pooled.point
        )
