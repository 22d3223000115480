"""Area under the curve of generalised risk and coverage."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy.typing as npt

from bfl.evaluation.metrics.area_under_risk_coverage import risk_coverage
from bfl.evaluation.metrics.base import Metric, metrics
from bfl.evaluation.prediction.predictions import Predictions


@metrics.register("area-under-generalized-risk", aliases=("augrc",))
class AreaUnderGeneralizedRisk(Metric):
    """Mean share of predictions that are accepted and wrong, over how many are accepted.

    AUGRC = ∫ P(wrong and among the share s of the highest confidence max_c p̄) ds, in [0, ½] without
    unit: the trapezoid over s = 0, 1/N … 1, which is (1 − AUROC) a (1 − a) + ½ (1 − a)² with a the
    accuracy and AUROC how well confidence tells right from wrong. Unlike the AURC it weighs every
    error by its rank alone.

    Example:
        >>> from bfl.evaluation.prediction import PredictionStatistics
        >>> predictions = PredictionStatistics.of([[[0.9, 0.1], [0.6, 0.4]]]).result()
        >>> AreaUnderGeneralizedRisk().compute(predictions, [0, 1])
        0.125

    Reference:
        Traub et al. (2024), "Overcoming common flaws in the evaluation of selective classification
        systems" (arXiv:2407.01032), section 3; with linear interpolation as their code has it
        (fd-shifts, ``RiskCoverageStats.augrc``).
    """

    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, 0.5)

    def compute(self, predictions: Predictions, labels: npt.ArrayLike) -> float:
        """Return the area; see ``Metric.compute``."""
        curve = risk_coverage(predictions, labels)
        risk = curve.value * curve.fraction
        return (math.fsum(risk) - float(risk[-1]) / 2) / risk.size
