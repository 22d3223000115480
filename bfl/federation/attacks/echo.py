"""What was received, sent back."""

from __future__ import annotations

import numpy as np

from bfl.federation.attacks.base import Attack, attacks
from bfl.posteriors import Posterior


@attacks.register("echo")
class Echo(Attack):
    """The global posterior that the client was sent, as if nothing had been learned.

    A free rider's update; no check can tell it from that of a client with nothing to learn. Under
    the weighting ``distance`` its divergence from the previous global posterior is 0, so it owns
    the pool and the federation stands still; two of them own ``max-discrepancy`` together.

    Source: Fraboni et al. (2021), "Free-rider attacks on model aggregation in federated learning",
    there called plain free-riding.
    """

    def corrupt(
        self, learned: Posterior, received: Posterior, generator: np.random.Generator
    ) -> Posterior:
        """Return the received posterior."""
        return received
