"""Expected entropy."""

from __future__ import annotations

from typing import ClassVar

from bfl.evaluation.prediction.predictions import FloatArray, Predictions
from bfl.evaluation.uncertainty.base import Uncertainty, uncertainties


@uncertainties.register("expected-entropy")
class ExpectedEntropy(Uncertainty):
    """Aleatoric part of the predictive entropy: the mean entropy of the samples.

    mean_m H̃[p̂_m], in [0, 1] without unit: a share of log C, as the normalised predictive entropy
    H̃[p̄] is (Eq. 8 of Fischer et al. 2024). With the mutual information it adds up to that.

    Example:
        >>> from bfl.evaluation.prediction import PredictionStatistics
        >>> samples = [[[1.0, 0.0]], [[0.5, 0.5]]]
        >>> ExpectedEntropy().measure(PredictionStatistics.of(samples).result()).round(4).tolist()
        [0.5]

    Reference:
        Depeweg et al. (2018), "Decomposition of uncertainty in Bayesian deep learning for
        efficient and risk-sensitive learning", section 3.
    """

    retention: ClassVar[bool] = False  # it ranks the examples nearly as the aleatoric trace does

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return the mean entropy of each example's samples: (N,) in [0, 1]."""
        return predictions.expected_entropy
