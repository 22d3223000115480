"""No correction: gradients as they are."""

from __future__ import annotations

from typing import ClassVar

from bfl.corrections.base import Correction, corrections
from bfl.parts import Arrays
from bfl.posteriors import Posterior


@corrections.register("none")
class NoCorrection(Correction):
    """The gradient as it is."""

    active: ClassVar[bool] = False

    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        """Return nothing."""
        return {}
