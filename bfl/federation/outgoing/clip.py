"""Differences of a bounded norm."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from bfl.federation.outgoing.base import Outgoing, outgoing_parts
from bfl.federation.privacy.difference import Array
from bfl.federation.privacy.normals import Normals

ClipNorm = Annotated[
    float,
    Field(
        gt=0.0,
        le=1e6,
        description="greatest L2 norm C of an update's difference in means, points and log σ",
    ),
]

INSIDE = 1.0 - 2.0**-40
"""What keeps rounding from leading out of the bound again."""


@outgoing_parts.register("clip")
class Clip(Outgoing):
    """Δ min(1, C / ‖Δ‖₂), of means, points and log σ together.

    Source: McMahan et al. (2018), "Learning differentially private recurrent language models",
    section 2, flat clipping.
    """

    stage = 1
    lengthens = False

    clip_norm: ClipNorm = 1.0

    def has(self) -> frozenset[str]:
        """Return that what follows knows how large a difference can be."""
        return frozenset({"clipped-updates"})

    def holds(self, difference: Array) -> bool:
        """Return whether the norm is at most ``clip_norm``."""
        return float(np.linalg.norm(difference)) <= self.clip_norm

    def change(self, difference: Array, normals: Normals) -> Array:
        """Return the difference with a norm of at most ``clip_norm``."""
        norm = float(np.linalg.norm(difference))
        # What is not finite stays so, for the checks to find.
        if not norm > self.clip_norm or not np.isfinite(norm):
            return difference
        return difference * (self.clip_norm / norm * INSIDE)
