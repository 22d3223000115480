"""Risk over coverage: the area under its curve, and the two points that people ask for."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics.base import Metric, checked_labels, metrics
from bfl.evaluation.prediction.predictions import Predictions
from bfl.evaluation.uncertainty.retention import RetentionCurve, retention_curve


@metrics.register("area-under-risk-coverage", aliases=("aurc",))
class AreaUnderRiskCoverage(Metric):
    """Mean error rate of the most confident predictions, over how many of them are accepted.

    AURC = mean_n r_n, in [0, 1] without unit, with r_n the share of errors among the n predictions
    of the highest confidence max_c p̄, n = 1…N; of equal confidences the mean over their orders.
    Errors of great confidence count many times: in 1/n of every n after them.

    Reference:
        Geifman, Uziel and El-Yaniv (2019), "Bias-reduced uncertainty estimation for deep neural
        classifiers" (arXiv:1805.08206), whose AURC is this mean over the empirical risks at all N
        thresholds.
    """

    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def compute(self, predictions: Predictions, labels: npt.ArrayLike) -> float:
        """Return the area; see ``Metric.compute``."""
        return risk_coverage(predictions, labels).area


@metrics.register("risk-at-80-coverage")
class RiskAt80Coverage(Metric):
    """Error rate of the 80 % of predictions of the highest confidence, linear between two numbers.

    Reference:
        Geifman and El-Yaniv (2017), "Selective classification for deep neural networks".
    """

    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def compute(self, predictions: Predictions, labels: npt.ArrayLike) -> float:
        """Return the rate; see ``Metric.compute``."""
        return float(risk_coverage(predictions, labels).at([0.8])[0])


@metrics.register("coverage-at-5-risk")
class CoverageAt5Risk(Metric):
    """Greatest share of predictions, of the highest confidence, with an error rate of 5 % at most.

    0 where even the most confident ones err more often.

    Reference:
        Geifman and El-Yaniv (2017), "Selective classification for deep neural networks".
    """

    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def compute(self, predictions: Predictions, labels: npt.ArrayLike) -> float:
        """Return the share; see ``Metric.compute``."""
        curve = risk_coverage(predictions, labels)
        return float(np.max(curve.fraction[curve.value <= 0.05], initial=0.0))


def risk_coverage(predictions: Predictions, labels: npt.ArrayLike) -> RetentionCurve:
    """Return the error rate of the n most confident predictions for n = 1…N."""
    wrong = predictions.predicted != checked_labels(predictions, labels)
    return retention_curve(wrong.astype(np.float64), -predictions.confidence)
