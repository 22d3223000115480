"""Epistemic uncertainty."""

from __future__ import annotations

from bfl.evaluation.prediction.predictions import FloatArray, Predictions
from bfl.evaluation.uncertainty.base import Uncertainty, uncertainties


@uncertainties.register("epistemic")
class Epistemic(Uncertainty):
    """Uncertainty of the model, which more data would reduce (trace of Kwon et al.'s matrix).

    tr mean_m (p̂_m − p̄) ⊗ (p̂_m − p̄) = mean_m Σ_c (p̂_mc − p̄_c)², in [0, 1 − 1/C] without unit.
    It is exactly 0 for identical samples, hence for every deterministic network.

    Example:
        >>> from bfl.evaluation.prediction import PredictionStatistics
        >>> certain_but_split = [[[1.0, 0.0]], [[0.0, 1.0]]]
        >>> Epistemic().measure(PredictionStatistics.of(certain_but_split).result()).tolist()
        [0.5]

    Reference:
        Kwon et al. (2020), "Uncertainty quantification using Bayesian neural networks in
        classification"; Fischer et al. (2024), Eq. 9, second term.
    """

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return the epistemic trace of each example: (N,) in [0, 1 − 1/C]."""
        return predictions.epistemic
