"""A plugin: Adam with a rate of its own for scales, for ``scripts/variances.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from bfl.learning.optimizers import Adam, TrainedVariable, optimizers


@optimizers.register("adam-with-faster-scales")
class AdamWithFasterScales(Adam):
    """Adam whose rate for untransformed scales ρ is a multiple of that for means.

    Source: the project's own, to show how fast scales have to learn.
    """

    scale_speed: float = Field(46.0, gt=0.0, description="the rate of ρ over that of means")

    def step(
        self,
        variables: Sequence[TrainedVariable],
        gradients: Sequence[Any],
        steps_before: Any,
        rate: Any,
    ) -> None:
        """Change the means, and then the scales; see ``Optimizer.step``."""
        for scale, speed in ((False, 1.0), (True, self.scale_speed)):
            own = [
                each for each in zip(variables, gradients, strict=True) if each[0].scale == scale
            ]
            if own:
                super().step(*map(list, zip(*own, strict=True)), steps_before, speed * rate)
