"""An absurd certainty."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from bfl.attacks.base import Attack, attacks
from bfl.posteriors import Posterior


@attacks.register("small-variance")
class SmallVariance(Attack):
    """Random means that are sent as certain: with a tiny variance.

    A rule that weights by the inverse variance takes the attacker's means for the truth. Honest
    means would do little harm with it, so they are random as in the attack ``noise``. Networks of
    points have no variance to lie about and send what they have learned.

    Source: none known; it is what equations (15) to (17) of Fischer et al. (2024) invite.
    """

    attack_scale: float = Field(
        1e-6, gt=0.0, description="standard deviation that an attacker claims to have"
    )

    def corrupt(
        self, learned: Posterior, received: Posterior, generator: np.random.Generator
    ) -> Posterior:
        """Return random means near 0 with a tiny variance."""
        spread = float(np.std(learned.mean)) if learned.size else 0.0
        means = (spread * generator.standard_normal(learned.size)).astype(np.float32)
        variance = np.full(learned.size, self.attack_scale**2, np.float32)
        return Posterior(means, variance, learned.point)
