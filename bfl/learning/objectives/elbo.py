"""The negative evidence lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bfl.learning.objectives.base import Step, Term, Value, objectives


@objectives.register("elbo", aliases=("evidence-lower-bound",))
class EvidenceLowerBound(Term):
    """The negative evidence lower bound of the client's data.

    Σ_n −E_q[log p(y_n | x_n, θ)] + KL[q ‖ p].

    The divergence counts once over the client's own N examples. Point weights have none: what is
    left is the cross-entropy.

    Source: Fischer et al. (2024), Eq. 6.
    """

    def value(self, step: Step, inputs: Mapping[str, Any], examples: Any) -> Value:
        """Return the batch's negative log-likelihood, or what stands for it, and the divergence."""
        return Value(step.loss, step.divergence)
