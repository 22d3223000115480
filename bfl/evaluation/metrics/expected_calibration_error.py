"""The expected calibration error: confidence beside accuracy, by bins of equal width."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.evaluation.metrics.base import Metric, checked_labels, metrics
from bfl.evaluation.prediction.predictions import FloatArray, IntArray, Predictions


@dataclass(frozen=True)
class CalibrationBins:
    """Accuracy and confidence by bins of confidence.

    Attributes:
        edges: (B + 1,) bounds of the bins in [0, 1]; bin b is (edges[b], edges[b + 1]].
        count: (B,) numbers of examples.
        accuracy: (B,) accuracies, NaN in an empty bin.
        confidence: (B,) mean confidences, NaN in an empty bin.
    """

    edges: FloatArray
    count: IntArray
    accuracy: FloatArray
    confidence: FloatArray

    @property
    def error(self) -> float:
        """The gaps |accuracy − confidence| weighted with the bins' shares of the examples."""
        filled = self.count > 0
        gap = np.abs(self.accuracy[filled] - self.confidence[filled])
        return math.fsum(gap * self.count[filled]) / int(self.count.sum())


@metrics.register("expected-calibration-error", aliases=("ece",))
class ExpectedCalibrationError(Metric):
    """Mean gap between confidence and accuracy, over bins of confidence.

    ECE = Σ_b (n_b / N) |a_b − c_b|, in [0, 1] without unit, with n_b the number of the N examples
    whose confidence max_c p̄ falls into bin b, a_b their accuracy and c_b their mean confidence.
    The B bins have equal width and are open below, ((b − 1)/B, b/B], as those of Guo et al.

    Ozer et al. write Σ_{m=1}^M (B_m/M)(a_i − c_i) with M "the count of the bin" and B_m that of the
    instances in it. Their B_m is n_b here and their a_i, c_i are a_b, c_b (i for m is a slip); the
    outer M is the number of bins B, while the divisor must be the number of instances N for the
    shares to add up to 1, and the gap must be absolute, as in their source (Naeini et al.), for
    over- and underconfident bins not to cancel. They do not state the number of bins; their code
    has 100, and this formula.

    Attributes:
        calibration_bins: The number B of bins.

    Reference:
        Naeini et al. (2015), "Obtaining well calibrated probabilities using Bayesian binning",
        Eq. 3; Guo et al. (2017), "On calibration of modern neural networks", Eq. 3; Ozer et al.
        (2022), "How to Combine Variational Bayesian Networks in Federated Learning", Metrics.
    """

    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    calibration_bins: int = Field(15, ge=1)
    """Number of bins of equal width in confidence."""

    def bins(self, predictions: Predictions, labels: npt.ArrayLike) -> CalibrationBins:
        """Return accuracy and confidence by bin, as the reliability diagram shows them."""
        right = predictions.predicted == checked_labels(predictions, labels)
        return self.bins_of(predictions.confidence, right)

    def bins_of(self, confidence: FloatArray, right: npt.NDArray[np.bool_]) -> CalibrationBins:
        """Return the bins of confidences (N,) and of whether predictions are right (N,)."""
        edges = np.linspace(0.0, 1.0, self.calibration_bins + 1)
        # A mean probability may round above 1; it belongs to the last bin.
        index = np.searchsorted(edges[:-1], confidence, side="left") - 1
        count = np.bincount(index, minlength=self.calibration_bins)
        with np.errstate(invalid="ignore"):  # 0 / 0 in an empty bin is the NaN that is promised
            return CalibrationBins(
                edges=edges,
                count=count.astype(np.int64),
                accuracy=np.bincount(index, weights=right, minlength=count.size) / count,
                confidence=_sums_by_bin(confidence, index, count.size) / count,
            )

    def compute(self, predictions: Predictions, labels: npt.ArrayLike) -> float:
        """Return the expected calibration error; see ``Metric.compute``."""
        return self.bins(predictions, labels).error


def _sums_by_bin(values: FloatArray, index: npt.NDArray[np.intp], bins: int) -> FloatArray:
    """Return the sum of the values in each bin, added in ascending order: no data order shows."""
    order = np.argsort(values, kind="stable")
    return np.asarray(np.bincount(index[order], weights=values[order], minlength=bins))
