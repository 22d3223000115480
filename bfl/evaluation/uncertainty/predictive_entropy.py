"""Normalised predictive entropy."""

from __future__ import annotations

from bfl.evaluation.prediction.entropy import normalized_entropy
from bfl.evaluation.prediction.predictions import FloatArray, Predictions
from bfl.evaluation.uncertainty.base import Uncertainty, uncertainties


@uncertainties.register("predictive-entropy", aliases=("normalized-entropy",))
class PredictiveEntropy(Uncertainty):
    """Entropy of the mean prediction as a share of the largest possible.

    H̃ = −Σ_c p̄_c log p̄_c / log C, in [0, 1] without unit: 0 for a certain prediction, 1 for the
    uniform one. It is the whole uncertainty, of the data and of the model: the sum of the expected
    entropy and the mutual information, which are in the same unit.

    Example:
        >>> from bfl.evaluation.prediction import PredictionStatistics
        >>> predictions = PredictionStatistics.of([[[1.0, 0.0], [0.5, 0.5]]]).result()
        >>> PredictiveEntropy().measure(predictions).tolist()
        [0.0, 1.0]

    Reference:
        Fischer et al. (2024), "Federated Bayesian Deep Learning", Eq. 8, after Park and Simoff
        (2015).
    """

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return H̃ of each example: (N,) in [0, 1]."""
        return normalized_entropy(predictions.mean_probability)
