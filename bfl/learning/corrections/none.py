"""No correction: gradients as they are."""

from __future__ import annotations

from typing import ClassVar

from bfl.federation.parts import Arrays
from bfl.learning.corrections.base import Correction, corrections
from bfl.posteriors import Posterior


@corrections.register("none")
class NoCorrection(Correction):
    """The gradient as it is."""

    active: ClassVar[bool] = False

    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        """Return nothing."""
        return {}
