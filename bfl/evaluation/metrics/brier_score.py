"""The Brier score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics.base import ExampleMetric, checked_labels, metrics
from bfl.evaluation.prediction.predictions import FloatArray, Predictions


@metrics.register("brier-score", aliases=("brier",))
class BrierScore(ExampleMetric):
    """Mean squared distance between the probabilities and the one-hot label.

    mean_n Σ_c (p̄_nc − [c = y_n])², summed over the classes and not averaged, in [0, 2] without
    unit: a proper score, 0 only for certain and right predictions, 2 for certain and wrong ones.

    Example:
        >>> from bfl.evaluation.prediction import PredictionStatistics
        >>> predictions = PredictionStatistics.of([[[0.5, 0.5], [0.0, 1.0]]]).result()
        >>> BrierScore().compute(predictions, [0, 0])
        1.25

    Reference:
        Brier (1950), "Verification of forecasts expressed in terms of probability", Eq. 2.
    """

    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, 2.0)

    def values(self, predictions: Predictions, labels: npt.ArrayLike) -> FloatArray:
        """Return (N,) squared distances in [0, 2]."""
        true = checked_labels(predictions, labels)
        difference = predictions.mean_probability.copy()
        difference[np.arange(true.size), true] -= 1.0
        return np.asarray((difference**2).sum(axis=1))
