"""Adaptive calibration error: by bins of equally many examples."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.evaluation.metrics.base import Metric, checked_labels, exact_mean, metrics
from bfl.evaluation.metrics.expected_calibration_error import BINS
from bfl.evaluation.prediction.predictions import FloatArray, Predictions


@metrics.register("adaptive-calibration-error", aliases=("ace",))
class AdaptiveCalibrationError(Metric):
    """Mean gap between probability and frequency of each class, over bins of equally many examples.

    ACE = 1/(C B) Σ_c Σ_b |f_cb − p_cb|, in [0, 1] without unit: the examples are sorted by their
    probability of class c and cut into B bins whose sizes differ by 1 at most; f_cb is how often c
    is the label in bin b, and p_cb its mean probability there. Examples of equal probability count
    with the mean of their group. Fewer than B examples are a bin each.

    Attributes:
        calibration_bins: The number B of bins.

    Example:
        >>> from bfl.evaluation.prediction import PredictionStatistics
        >>> predictions = PredictionStatistics.of([[[0.75, 0.25], [0.75, 0.25]]]).result()
        >>> AdaptiveCalibrationError().compute(predictions, [0, 1])
        0.25

    Reference:
        Nixon et al. (2019), "Measuring calibration in deep learning" (arXiv:1904.01685), where it
        is 1/(K R) Σ_k Σ_r |acc(r, k) − conf(r, k)| over K classes and R ranges of equally many
        predictions.
    """

    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    calibration_bins: int = Field(15, ge=1, description=BINS)

    def compute(self, predictions: Predictions, labels: npt.ArrayLike) -> float:
        """Return the adaptive calibration error; see ``Metric.compute``."""
        true = checked_labels(predictions, labels)
        columns = enumerate(predictions.mean_probability.T)
        gaps = [self._gaps(column, true == label) for label, column in columns]
        return exact_mean(np.concatenate(gaps))

    def _gaps(self, probability: FloatArray, hit: npt.NDArray[np.bool_]) -> FloatArray:
        """Return the gap of each bin of one class."""
        values, group, count = np.unique(probability, return_inverse=True, return_counts=True)
        frequency = np.repeat(np.bincount(group, weights=hit) / count, count)
        number = min(self.calibration_bins, probability.size)
        bins = np.array_split(frequency - np.repeat(values, count), number)
        return np.array([abs(each.mean()) for each in bins])
