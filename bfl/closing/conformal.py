"""Prediction sets that hold the true class as often as is promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.closing.base import (
    DEVIATION,
    HEAD,
    Array,
    Closing,
    Examples,
    Histogram,
    Known,
    Measurement,
    Shapes,
    Sizes,
    Sums,
    closings,
)
from bfl.closing.bayesian_head import TEMPERATURE, VALUES, VECTORS, Head
from bfl.evaluation.prediction.statistics import PredictionStatistics

THRESHOLD, THRESHOLDS = "conformal-threshold", "conformal-thresholds"
"""The greatest score in a set: of all classes together, and of each class (C,)."""

SETS = ("conformal", "conformal-by-class")
"""The names of the prediction sets by these."""

BINS = 1000
"""Bins of the histogram of scores in [0, 1]: a threshold is the upper edge of one."""

JOINED = 50
"""Bins that count as one, in the last of them, where sums have noise."""


class ScoresOfLabels(Histogram):
    """Histograms of the scores of held-back examples' true classes, by class."""

    told: ClassVar[tuple[str, ...]] = (HEAD, VECTORS, VALUES, TEMPERATURE)

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha

    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shape of the histograms."""
        return {"scores": (sizes.classes, BINS)}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return the histogram of scores of each class."""
        found = scores(known, examples.features)[np.arange(len(examples.labels)), examples.labels]
        bins = _bins(found)
        if examples.noised:
            bins = bins // JOINED * JOINED + JOINED - 1
        counts = np.zeros((examples.classes, BINS))
        np.add.at(counts, (examples.labels, bins), 1.0)
        return {"scores": counts}

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the thresholds."""
        counts = np.asarray(sums["scores"], np.float64)
        threshold, together, alone = self._threshold, 0.0, 0.0
        if DEVIATION in known:
            counts, alone = counts[:, JOINED - 1 :: JOINED], float(known[DEVIATION])
            threshold, together = self._noised_threshold, alone * math.sqrt(len(counts))
        return {
            **known,
            THRESHOLD: np.array(threshold(counts.sum(axis=0), together)),
            THRESHOLDS: np.array([threshold(each, alone) for each in counts]),
        }

    def _noised_threshold(self, counts: Array, noise: float) -> float:
        """Return the edge above which too few scores lie, whatever a noise of two deviations is."""
        behind = np.arange(len(counts))[::-1]
        above = counts[::-1].cumsum()[::-1] - counts + 2.0 * noise * np.sqrt(behind)
        least = counts.sum() - 2.0 * noise * math.sqrt(len(counts))
        few = above <= self._alpha * (least + 1.0) - 1.0 + 1e-9
        kept = int(np.logical_and.accumulate(few[::-1]).sum())
        return 1.0 - max(kept - 1, 0) / len(counts)

    def _threshold(self, counts: Array, noise: float) -> float:
        """Return the upper edge of the bin of the ⌈(n + 1)(1 − α)⌉-th score; 1 without so many."""
        rank = math.ceil((round(counts.sum()) + 1) * (1.0 - self._alpha) - 1e-9)
        reached = np.flatnonzero(np.cumsum(counts) >= rank - 0.5)
        return float(reached[0] + 1) / BINS if reached.size else 1.0


@closings.register("conformal")
class Conformal(Closing):
    """Split conformal prediction sets: they hold the true class with probability 1 − α.

    Clients send a histogram of the scores s = 1 − p[y] of examples that they have held back
    (``calibration-share``), by class. With n of them, the threshold is the ⌈(n + 1)(1 − α)⌉-th
    smallest, rounded up to the edge of its bin; the set of an image are the classes of p ≥ 1 − s.
    The thresholds by class hold for each class by itself. Images have to be exchangeable with all
    clients' examples together.

    Under privacy's noise scores are counted in 20 bins, and an example moves one count by 1. A
    threshold is the lowest edge from which on no more than α of all lie above it, with two
    standard deviations of the noise on either count against it: where noise is large, 1, and a set
    holds every class.

    Reference: Sadinle et al. (2019), "Least ambiguous set-valued classifiers"; Lu et al. (2023),
    "Federated conformal predictors".
    """

    moves_head: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    conformal_alpha: float = Field(
        0.1, gt=0.0, lt=1.0, description="α: how often a prediction set may miss the true class"
    )

    def measurements(self) -> Sequence[Measurement]:
        """Return that of the scores, once the last layer is found."""
        return (ScoresOfLabels(self.conformal_alpha),)

    def held_back_problem(self, examples: int) -> str | None:
        """Return that α asks for a score beyond all n; sets would then hold every class."""
        if math.ceil((examples + 1) * (1.0 - self.conformal_alpha) - 1e-9) <= examples:
            return None
        return (
            f"conformal-alpha is {self.conformal_alpha:g}, and all clients together hold back "
            f"{examples} examples (calibration-share), so every set would hold every class; "
            f"allowed: from {1 / (examples + 1):.2g}, or a greater calibration-share"
        )


def scores(known: Known, features: Array) -> Array:
    """Return 1 − p of each class (N, C), from features (N, F + 1), by the last layer found."""
    statistics = PredictionStatistics()
    for logits in Head.of(known).logits(features):
        statistics.add_logits(logits)
    return 1.0 - statistics.result().mean_probability


def sets(known: Known, features: Array) -> dict[str, np.ndarray]:
    """Return the prediction sets (N, C) of features (N, F + 1); none without thresholds."""
    if THRESHOLD not in known:
        return {}
    found = _bins(scores(known, features)) + 1
    limits = zip(SETS, (known[THRESHOLD], known[THRESHOLDS]), strict=True)
    return {name: found <= np.rint(limit * BINS) for name, limit in limits}


def _bins(found: Array) -> np.ndarray:
    return np.minimum((found * BINS).astype(np.int64), BINS - 1)
