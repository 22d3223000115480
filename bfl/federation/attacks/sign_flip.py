"""Means with the opposite sign."""

from __future__ import annotations

import numpy as np

from bfl.federation.attacks.base import Attack, attacks
from bfl.posteriors import Posterior


@attacks.register("sign-flip")
class SignFlip(Attack):
    """Means with the opposite sign, variances as learned.

    Source: Li et al. (2019), "RSA: Byzantine-robust stochastic aggregation", section 5; there the
    sign of what is sent is flipped and it is scaled, here it is flipped alone. Networks of points
    send the negative of their points.
    """

    def corrupt(
        self, learned: Posterior, received: Posterior, generator: np.random.Generator
    ) -> Posterior:
        """Return the learned posterior with negative means."""
        if learned.size == 0:
            return Posterior(learned.mean, learned.variance, -learned.point)
        return Posterior(-learned.mean, learned.variance, learned.point)
