"""The cavity: the global posterior without the client's own factor."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.federation.parts import Arrays, Trained
from bfl.learning.priors.base import Prior, QuadraticPrior, priors
from bfl.posteriors import Posterior
from bfl.posteriors.natural import NaturalParameters

FACTOR, CHANGE = "factor", "change"


def _arrays(name: str, natural: NaturalParameters) -> Arrays:
    return {
        f"{name}-weighted-mean": natural.weighted_mean,
        f"{name}-precision": natural.precision,
    }


def _natural(name: str, arrays: Arrays) -> NaturalParameters:
    return NaturalParameters(arrays[f"{name}-weighted-mean"], arrays[f"{name}-precision"])


@priors.register("cavity")
class CavityPrior(Prior):
    """What all other clients and the prior say: the global posterior over the client's own factor.

    The client keeps a factor t_k, which begins by saying nothing, so that the global posterior is
    the product of the prior and all factors. Its prior in a round is q / t_k. It sends q_k; once
    the server has pooled it with damping ρ, t_k has become t_k (q_k / q)^ρ.

    A cavity need not be a density: where other clients' factors take certainty away its precision
    may be 0 or less. Its logarithm is a quadratic all the same, and the objective with it as good.

    Before the first round there are no factors, and the global posterior is the prior itself,
    N(0, prior-scale² I): whoever starts a Strategy with this part begins with
    ``first_posterior``. Where clients' optimizers begin is the business of the key ``start``.

    Source: Bui et al. (2018), "Partitioned variational inference", Algorithm 1; Ashman et al.
    (2022), Algorithm 1.
    """

    state_name: ClassVar[str] = "factors"

    # Below the least scale the variance would be 0 in float32.
    prior_scale: float = Field(10.0, ge=1e-9, le=1e6, description="standard deviation of the prior")

    def has(self) -> frozenset[str]:
        """Return that it is the cavity."""
        return frozenset({"cavity"})

    def requires(self) -> frozenset[str]:
        """Return the server's side of it, and that variances are received."""
        return frozenset({"factors", "sent-variances"})

    def excludes(self) -> frozenset[str]:
        """Return that a factor says what the client has learned."""
        return frozenset({"corrupted-updates"})

    def first_posterior(self, initial: Posterior) -> Posterior:
        """Return the prior, q₀ = p, with the network's own point values, which have none."""
        return Posterior(
            np.zeros_like(initial.mean),
            np.full_like(initial.variance, self.prior_scale**2),
            initial.point,
        )

    def begin_client(self, received: Posterior) -> Arrays:
        """Return a factor that says nothing."""
        return _arrays(FACTOR, NaturalParameters.nothing(received.size))

    def density(self, received: Posterior, state: Arrays) -> QuadraticPrior:
        """Return q / t_k around the received mean m: slope Λ_k m − η_k and precision Λ − Λ_k."""
        factor = _natural(FACTOR, state)
        mean = received.mean.astype(np.float64)
        return QuadraticPrior(
            centre=received.mean,
            slope=factor.precision * mean - factor.weighted_mean,
            precision=1.0 / received.variance.astype(np.float64) - factor.precision,
        )

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return nothing to send, and the factor with the change that waits to be pooled."""
        sent = NaturalParameters.of(trained.sent.mean, trained.sent.variance)
        change = sent - NaturalParameters.of(trained.received.mean, trained.received.variance)
        return {}, {**state, **_arrays(CHANGE, change)}

    def commit(self, kept: Arrays, damping: float) -> Arrays:
        """Return the factor with the damped change made."""
        return _arrays(FACTOR, _natural(FACTOR, kept) + damping * _natural(CHANGE, kept))
