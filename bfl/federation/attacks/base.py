"""What an attack is."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from bfl.posteriors import Posterior
from bfl.registry import Component, Registry


class Attack(Component):
    """What a hostile client sends in place of the posterior that it has learned.

    It is told apart from what an honest client would have sent, so it goes with no part whose
    client reckons what it keeps from what it has sent: from its second round on such a client
    would not train honestly before it lies, and what is measured would be another attack.
    """

    @property
    def idle(self) -> bool:
        """Whether it sends what was learned, so that no client is a hostile one."""
        return False

    def has(self) -> frozenset[str]:
        """Return whether updates are corrupted."""
        return frozenset() if self.idle else frozenset({"corrupted-updates"})

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
