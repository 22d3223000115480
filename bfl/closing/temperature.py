"""One temperature for all logits, from the log-likelihoods of held-back examples on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bfl.closing.base import (
    HEAD,
    LEAST_LIKELIHOOD,
    ROUNDED,
    Closing,
    Examples,
    Known,
    Measurement,
    Shapes,
    Sizes,
    Sums,
    closings,
)
from bfl.closing.bayesian_head import TEMPERATURE, VALUES, VECTORS, Head
from bfl.evaluation.prediction.statistics import log_softmax

FACTORS = np.geomspace(0.1, 10.0, 81)
"""By what the temperature may be multiplied, 6 % apart, 1 among them."""


class LikelihoodByTemperature(Measurement):
    """The log-likelihood of held-back examples at each temperature of the grid."""

    told: ClassVar[tuple[str, ...]] = (HEAD, VECTORS, VALUES, TEMPERATURE)
    on_held_back: ClassVar[bool] = True

    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shape of the grid."""
        return {"by-temperature": FACTORS.shape}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return the log-likelihood of mean predictions at each temperature."""
        drawn = [*Head.of(known).logits(examples.features)]
        rows = np.arange(len(examples.labels))
        sums = []
        for factor in FACTORS:
            likely = np.mean(
                [np.exp(log_softmax(z / factor))[rows, examples.labels] for z in drawn], 0
            )
            log_likely = np.log(np.maximum(likely, np.finfo(np.float64).tiny))
            sums.append(np.maximum(log_likely, LEAST_LIKELIHOOD).sum())
        return {"by-temperature": np.array(sums)}

    def find_problem(self, sums: Sums, examples: int, *, noised: bool = False) -> str | None:
        """Return that a log-likelihood is above 0, if one is."""
        above = sums["by-temperature"].max() > ROUNDED * examples
        return "a log-likelihood above 0" if above else None

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the most likely temperature; the one that there is where nobody holds any back."""
        likelihood = sums["by-temperature"]
        best = int(np.argmax(likelihood)) if likelihood.any() else len(FACTORS) // 2
        return {**known, TEMPERATURE: known.get(TEMPERATURE, np.array(1.0)) * FACTORS[best]}


@closings.register("temperature")
class Temperature(Closing):
    """The temperature T of softmax(z/T) that examples which clients hold back find most likely.

    Clients send Σ log mean softmax(z_n/T)[y_n] at 81 temperatures, and the server takes the best.
    ``bayesian-head`` picks one of 11 by itself, beside the last layer's precision.

    Reference: Guo et al. (2017), "On calibration of modern neural networks".
    """

    moves_head: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = False

    def measurements(self) -> Sequence[Measurement]:
        """Return that of the grid."""
        return (LikelihoodByTemperature(),)
