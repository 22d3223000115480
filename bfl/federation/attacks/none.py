"""No attack."""

from __future__ import annotations

import numpy as np

from bfl.federation.attacks.base import Attack, attacks
from bfl.posteriors import Posterior


@attacks.register("none")
class NoAttack(Attack):
    """Nobody is hostile."""

    @property
    def idle(self) -> bool:
        """True."""
        return True

    def corrupt(
        self, learned: Posterior, received: Posterior, generator: np.random.Generator
    ) -> Posterior:
        """Return what has been learned."""
        return learned
