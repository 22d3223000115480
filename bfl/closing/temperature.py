"""One temperature for all logits, from clients' log-likelihoods on a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from bfl.closing.base import FEATURE_BOUND, HEAD, Closing, Examples, Known, Sums, closings
from bfl.closing.curvature import ROUNDED
from bfl.evaluation.prediction.statistics import log_softmax

TEMPERATURE = "temperature"

GRID = np.geomspace(0.1, 10.0, 81)
"""Temperatures whose log-likelihood clients send: 6 % apart."""


@closings.register("temperature")
class Temperature(Closing):
    """The temperature T of softmax(z/T) that all clients' examples find most likely.

    Clients send Σ log softmax(z_n/T)[y_n] on a grid of 81 temperatures, and the server takes the
    top of the parabola through the best three, in log T. The examples are those that clients have
    held back (``calibration-share``), and else those that they have trained on.

    Reference: Guo et al. (2017), "On calibration of modern neural networks".
    """

    told: ClassVar[tuple[str, ...]] = (HEAD,)
    moves_head: ClassVar[bool] = True
    on_held_back: ClassVar[bool] = True

    @property
    def waits(self) -> bool:
        """True, as it begins when the last layer is found."""
        return True

    def shapes(self, features: int, classes: int) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of the grid."""
        return {"by-temperature": GRID.shape}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return the log-likelihood at each temperature of the grid."""
        logits = examples.features @ known[HEAD]
        rows = np.arange(len(logits))
        sums = [log_softmax(logits / t)[rows, examples.labels] for t in GRID]
        return {"by-temperature": np.maximum(sums, -(FEATURE_BOUND**2)).sum(axis=1)}

    def implausible(
        self,
        sums: Sums,
        examples: int,
        *,
        noised: bool = False,
        beside: Mapping[str, Sums] | None = None,
    ) -> str | None:
        """Return that a log-likelihood is above 0, if one is."""
        above = sums["by-temperature"].max() > ROUNDED * examples
        return "a log-likelihood above 0" if above else None

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the most likely temperature."""
        likelihood = np.asarray(sums["by-temperature"], np.float64)
        if not likelihood.any():  # nobody has held anything back
            return {**known, TEMPERATURE: np.array(1.0)}
        at = int(np.clip(np.argmax(likelihood), 1, len(GRID) - 2))
        below, here, above = likelihood[at - 1 : at + 2]
        bend = below - 2 * here + above
        shift = 0.5 * (below - above) / bend if bend < 0 else np.argmax(likelihood) - at
        step = np.log(GRID[1] / GRID[0])
        return {**known, TEMPERATURE: np.exp(np.log(GRID[at]) + np.clip(shift, -1, 1) * step)}
