"""Nothing is done."""

from __future__ import annotations

from bfl.federation.outgoing.base import Outgoing, outgoing_parts
from bfl.federation.privacy.difference import Array
from bfl.federation.privacy.normals import Normals


@outgoing_parts.register("none")
class AsLearned(Outgoing):
    """Clients send what they have learned."""

    lengthens = False

    @property
    def active(self) -> bool:
        """Whether it does anything: no."""
        return False

    def change(self, difference: Array, normals: Normals) -> Array:
        """Return the difference."""
        return difference
