"""No prior at all: a constant density, which no Gaussian is pulled towards."""

from __future__ import annotations

import numpy as np

from bfl.federation.parts import Arrays
from bfl.learning.priors.base import Prior, QuadraticPrior, priors
from bfl.posteriors import Posterior


@priors.register("flat")
class FlatPrior(Prior):
    """No prior: a constant, which is no density. KL[q ‖ p] is −H[q], the negative entropy of q.

    With it and ``temperature`` = T the ELBO fits q to the normalised likelihood to the power 1/T,
    KL[q ‖ p(D|θ)^(1/T) / γ]: a client makes small

        mean_n E_q[−log p(y_n | x_n, θ)] − (T / N) H[q],

    which is that divergence times T / N, up to a constant. Near a mode where the mean loss has
    second derivatives h, σ² is about T / (N h). Entropies are given up to a constant, ½ log 2π
    nats a parameter. Nothing but the data holds a parameter: one that the loss does not see is
    given ever more variance, as slowly as the optimizer moves ρ.

    Weight decay, of an optimizer that has it, pulls means and point values to 0 and does not touch
    the untransformed scales ρ, unless ``weight-decay-of`` says so.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem" (HBFL), Eq. 4.1. The factor T / N is the project's:
    with it learning rates mean what they mean without a temperature.
    """

    def density(self, received: Posterior, state: Arrays) -> QuadraticPrior:
        """Return a quadratic of precision 0 and slope 0."""
        nothing = np.zeros(received.size)
        return QuadraticPrior(np.zeros(received.size, np.float32), nothing, nothing)
