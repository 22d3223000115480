"""An absurd certainty."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from bfl.federation.attacks.base import Attack, attacks
from bfl.posteriors import Posterior


@attacks.register("small-variance")
class SmallVariance(Attack):
    """Random means that are sent as certain: with a tiny variance.

    A rule that weights by the inverse variance takes the attacker's means for the truth. The claim
    is made anew in each round, relative to the posterior received: a fixed one would capture the
    first round only, after which all clients are as certain. The means are random, since honest
    ones would do little harm. Networks of points have no variance to lie about and send what they
    have learned.

    Source: none known; it is what equations (15) to (17) of Fischer et al. (2024) invite.
    """

    attack_scale: float = Field(
        1e-3,
        gt=0.0,
        description="standard deviation that an attacker claims, as a share of the received one",
    )

    def corrupt(
        self, learned: Posterior, received: Posterior, generator: np.random.Generator
    ) -> Posterior:
        """Return random means as large as those learned, with a tiny variance."""
        spread = float(np.std(learned.mean)) if learned.size else 0.0
        means = (spread * generator.standard_normal(learned.size)).astype(np.float32)
        claimed = self.attack_scale**2 * received.variance.astype(np.float64)
        variance = np.maximum(claimed, np.finfo(np.float32).tiny).astype(np.float32)
        return Posterior(means, variance, learned.point)
