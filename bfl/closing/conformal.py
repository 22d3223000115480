"""Prediction sets that hold the true class as often as is promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.closing import base, heads
from bfl.closing.base import Array, Closing, Examples, Histogram, Known, Measurement, Sums
from bfl.evaluation.prediction.predictions import PredictionStatistics

THRESHOLD, THRESHOLDS = "conformal-threshold", "conformal-thresholds"  # by class (C,)
SETS = ("conformal", "conformal-by-class")  # the names of the prediction sets by these
BINS = 1000  # of scores in [0, 1]: a threshold is the upper edge of one


@base.closings.register("conformal")
class Conformal(Closing):
    """Split conformal prediction sets: they hold the true class with probability 1 − α.

    Clients send a histogram of the scores s = 1 − p[y] of examples that they have held back
    (``calibration-share``), by class. With n of them, the threshold is the ⌈(n + 1)(1 − α)⌉-th
    smallest, rounded up to the edge of its bin; the set of an image are the classes of p ≥ 1 − s.
    The thresholds by class hold for each class by itself. Images have to be exchangeable with all
    clients' examples together.

    Reference: Sadinle et al. (2019), "Least ambiguous set-valued classifiers"; Lu et al. (2023),
    "Federated conformal predictors".
    """

    moves_head: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    conformal_alpha: float = Field(0.1, gt=0.0, lt=1.0)
    """α: how often a prediction set may miss the true class"""

    def measurements(self) -> Sequence[Measurement]:
        """Return that of the scores, once the last layer is found."""
        return (_ScoresOfLabels(self.conformal_alpha),)

    def held_back_problem(self, examples: int) -> str | None:
        """Return that α asks for a score beyond all n; sets would then hold every class."""
        if math.ceil((examples + 1) * (1.0 - self.conformal_alpha) - 1e-9) <= examples:
            return None
        return (
            f"conformal-alpha is {self.conformal_alpha:g}, and all clients together hold back "
            f"{examples} examples (calibration-share), so every set would hold every class; "
            f"allowed: from {1 / (examples + 1):.2g}, or a greater calibration-share"
        )


@dataclass(frozen=True)
class _ScoresOfLabels(Histogram):
    """The histograms of the scores of held-back examples' true classes."""

    alpha: float
    inputs: ClassVar[tuple[str, ...]] = (base.HEAD, heads.VECTORS, heads.VALUES, heads.TEMPERATURE)
    bins: ClassVar[int] = BINS
    by_class: ClassVar[bool] = True

    def places(self, known: Known, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        rows, labels = np.arange(len(examples.labels)), examples.labels
        return labels, _bins(scores(known, examples.features)[rows, labels])

    def fold(self, known: Known, sums: Sums) -> Known:
        by_class = np.array([self._threshold(each) for each in sums["counts"]])
        of_all = np.array(self._threshold(sums["counts"].sum(axis=0)))
        return {**known, THRESHOLD: of_all, THRESHOLDS: by_class}

    def _threshold(self, counts: Array) -> float:
        place = base.rank_of(counts, 1.0 - self.alpha)
        return 1.0 if place is None else (place + 1) / BINS


def scores(known: Known, features: Array) -> Array:
    """Return 1 − p of each class (N, C), from features (N, F + 1), by the last layer found."""
    statistics = PredictionStatistics()
    for logits in heads.draw_logits(known, features):
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
