"""Aleatoric uncertainty."""

from __future__ import annotations

from bfl.evaluation.prediction.predictions import FloatArray, Predictions
from bfl.evaluation.uncertainty.base import Uncertainty, uncertainties


@uncertainties.register("aleatoric")
class Aleatoric(Uncertainty):
    """Uncertainty of the data, which more data would not reduce (trace of Kwon et al.'s matrix).

    tr mean_m (diag(p̂_m) − p̂_m ⊗ p̂_m) = 1 − mean_m Σ_c p̂_mc², in [0, 1 − 1/C] without unit.
    With the epistemic uncertainty it adds up to 1 − Σ_c p̄_c².

    Example:
        >>> from bfl.evaluation.prediction import PredictionStatistics
        >>> certain_but_split = [[[1.0, 0.0]], [[0.0, 1.0]]]
        >>> Aleatoric().measure(PredictionStatistics.of(certain_but_split).result()).tolist()
        [0.0]

    Reference:
        Kwon et al. (2020), "Uncertainty quantification using Bayesian neural networks in
        classification"; Fischer et al. (2024), Eq. 9, first term.
    """

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return the aleatoric trace of each example: (N,) in [0, 1 − 1/C]."""
        return predictions.aleatoric
