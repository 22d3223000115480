"""Random means."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from bfl.federation.attacks.base import Attack, attacks
from bfl.posteriors import Posterior


@attacks.register("noise")
class Noise(Attack):
    """Random means around 0, variances as learned.

    Source: Blanchard et al. (2017), "Machine learning with adversaries", section 5.1: Gaussian
    noise in place of what was learned. Networks of points send random points.
    """

    noise_scale: float = Field(1.0, gt=0.0, description="standard deviation of an attacker's means")

    def corrupt(
        self, learned: Posterior, received: Posterior, generator: np.random.Generator
    ) -> Posterior:
        """Return the learned posterior with normal random means."""

        def noise(size: int) -> np.ndarray:
            return (self.noise_scale * generator.standard_normal(size)).astype(np.float32)

        if learned.size == 0:
            return Posterior(learned.mean, learned.variance, noise(learned.point.size))
        return Posterior(noise(learned.size), learned.variance, learned.point)
