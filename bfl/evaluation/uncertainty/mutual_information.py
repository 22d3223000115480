"""Mutual information."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bfl.evaluation.prediction.entropy import normalized_entropy
from bfl.evaluation.prediction.predictions import FloatArray, Predictions
from bfl.evaluation.uncertainty.base import Uncertainty, uncertainties


@uncertainties.register("mutual-information")
class MutualInformation(Uncertainty):
    """Epistemic part of the predictive entropy: what the label would tell about the parameters.

    I[y; θ] / log C = H̃[p̄] − mean_m H̃[p̂_m], in [0, 1] without unit: a share of log C, as the
    normalised predictive entropy is (Eq. 8 of Fischer et al. 2024). It is exactly 0 for identical
    samples; elsewhere rounding below 0 is cut off.

    Example:
        >>> from bfl.evaluation.prediction import PredictionStatistics
        >>> samples = [[[1.0, 0.0]], [[0.0, 1.0]]]
        >>> MutualInformation().measure(PredictionStatistics.of(samples).result()).round(4).tolist()
        [1.0]

    Reference:
        Houlsby et al. (2011), "Bayesian active learning for classification and preference
        learning", Eq. 2; Depeweg et al. (2018), section 3.
    """

    retention: ClassVar[bool] = False  # it ranks the examples nearly as the epistemic trace does

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return the mutual information of each example's label and parameters: (N,) in [0, 1]."""
        whole = normalized_entropy(predictions.mean_probability)
        return np.asarray(np.maximum(whole - predictions.expected_entropy, 0.0))
