"""What a part of the chain is that an update passes on its way out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from bfl.federation.parts import Counts
from bfl.federation.privacy.difference import Array
from bfl.federation.privacy.mechanism import Mechanism
from bfl.federation.privacy.normals import Normals
from bfl.registry import Component, Registry


class Outgoing(Component, ABC):
    """What is done to what a client has learned before it is sent, and to the clients' pool.

    It works on the update's difference from what was received, a vector of means, points and
    logarithms of standard deviations (``bfl.federation.privacy.difference``).

    Attributes:
        stage: Where in a chain it stands: no part stands behind one of a later stage.
        lengthens: Whether a difference may be longer behind it than before, by ``change`` or by
            ``change_pool``: one that may has no place where privacy rests on a bounded length.
    """

    stage: ClassVar[int] = 0
    lengthens: ClassVar[bool] = True

    @property
    def active(self) -> bool:
        """Whether it does anything, as it is set."""
        return True

    @property
    def private(self) -> bool:
        """Whether nothing but what the chain gives may leave a client: no number it measured."""
        return False

    @property
    def draws(self) -> bool:
        """Whether ``change`` draws random numbers."""
        return False

    @property
    def draws_on_pool(self) -> bool:
        """Whether ``change_pool`` draws random numbers: the noise is the server's."""
        return False

    def mechanism(self) -> Mechanism | None:
        """Return what an account reckons with; None: there is no noise, and no ε."""
        return None

    @abstractmethod
    def change(self, difference: Array, normals: Normals) -> Array:
        """Return what a client's difference becomes: that very array if it stays as it is.

        Args:
            difference: (2 D + P,) what is left of it by the parts before.
            normals: Where the part's random numbers are from.
        """

    def holds(self, difference: Array) -> bool:
        """Return whether what rounding has made of the part's result is as the part promises."""
        return True

    def change_pool(self, difference: Array, counts: Counts, normals: Normals) -> Array:
        """Return what the pool's difference from the previous posterior becomes, on the server.

        Args:
            difference: (2 D + P,), as ``change`` has it.
            counts: How many clients were asked, and have been pooled.
            normals: Where the part's random numbers are from.
        """
        return difference


outgoing_parts: Registry[Outgoing] = Registry("outgoing", "bfl.federation.outgoing")
