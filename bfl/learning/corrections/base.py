"""What a correction is: vectors that a client adds to its gradients, constant within a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from bfl.federation.parts import Arrays, Part
from bfl.posteriors import Posterior
from bfl.registry import Registry


class Correction(Part, ABC):
    """A part that adds something to the gradient of every step of a client's round.

    It acts on means and on point parameters that training moves; standard deviations are left to
    the objective.

    Attributes:
        active: Whether it adds anything at all; if not, no step computes it.
        needs_full_gradient: Whether ``conclude`` needs the gradient at the received posterior.
    """

    active: ClassVar[bool] = True

    @property
    def needs_full_gradient(self) -> bool:
        """Whether ``conclude`` needs the gradient over all examples at the received posterior."""
        return False

    def has(self) -> frozenset[str]:
        """Return whether it looks at all examples at once, beside what it sends."""
        return super().has() | ({"full-gradient"} if self.needs_full_gradient else frozenset())

    @abstractmethod
    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        """Return what is added to the gradients: ``mean`` (D,) and ``point`` (P,), float32.

        Args:
            state: The client's state.
            broadcast: What the server has sent beside the posterior.
            received: The global posterior, which gives the sizes.
        """


corrections: Registry[Correction] = Registry("correction", "bfl.learning.corrections")
