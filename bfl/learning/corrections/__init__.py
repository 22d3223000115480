"""Corrections: vectors that a client adds to its gradients, constant within a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from bfl.errors import ConfigurationError, public
from bfl.federation.parts import Arrays, DeclaredArray, TwoSidedPart, extras_problem
from bfl.posteriors import Posterior
from bfl.registry import Registry


class Correction(TwoSidedPart, ABC):
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
        """True if ``conclude`` needs the gradient over all examples at the received posterior."""
        return False

    def has(self) -> frozenset[str]:
        """Return whether it looks at all examples at once, besides what it sends."""
        return super().has() | ({"full-gradient"} if self.needs_full_gradient else frozenset())

    @abstractmethod
    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        """Return what is added to the gradients: ``mean`` (D,) and ``point`` (P,), float32.

        Args:
            state: The client's state.
            broadcast: What the server has sent besides the posterior.
            received: The global posterior, which gives the sizes.
        """

    def checked_offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        """Return ``offsets`` of the right names and shapes; nothing if it is not active.

        Raises:
            ConfigurationError: One is missing, or of another shape, or there are others.
        """
        if not self.active:
            return {}
        given = self.offsets(state, broadcast, received)
        offsets = {name: np.asarray(array, np.float32) for name, array in given.items()}
        wanted = [DeclaredArray(v, getattr(received, v).shape) for v in ("mean", "point")]
        problem = extras_problem(offsets, wanted, values=False)
        if problem:
            shapes = " and ".join(f"'{array.name}' {array.shape}" for array in wanted)
            refusal = ConfigurationError(
                f"correction '{self.name}' adds {problem} to gradients; allowed: {shapes}, both"
            )
            raise public(refusal)
        return offsets


corrections: Registry[Correction] = Registry("correction", "bfl.learning.corrections")


@corrections.register("none")
class NoCorrection(Correction):
    """The gradient as it is."""

    active: ClassVar[bool] = False

    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        """Return nothing."""
        return {}
