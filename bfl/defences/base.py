"""What a defence is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from bfl.posteriors import Posterior
from bfl.registry import Component, Registry


class Defence(Component):
    """What is done to the clients' posteriors before they are weighted and pooled.

    It changes posteriors and leaves the rule alone, so every defence goes with every rule.
    """

    @abstractmethod
    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return K posteriors to pool in place of those that K clients have sent.

        Args:
            posteriors: K posteriors of one size, checked.
        """


defences: Registry[Defence] = Registry("defence", "bfl.defences")
