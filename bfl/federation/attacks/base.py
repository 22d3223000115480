"""What an attack is."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from bfl.posteriors import Posterior
from bfl.registry import Component, Registry


class Attack(Component):
    """What a hostile client sends in place of the posterior that it has learned."""

    @abstractmethod
    def corrupt(
        self, learned: Posterior, received: Posterior, generator: np.random.Generator
    ) -> Posterior:
        """Return what is sent.

        Args:
            learned: The posterior that honest training has given.
            received: The global posterior that the client was sent.
            generator: The source of the attack's randomness.
        """


attacks: Registry[Attack] = Registry("attack", "bfl.federation.attacks")
