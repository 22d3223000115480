"""Negative log-likelihood."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.metrics.base import ExampleMetric, checked_labels, metrics
from bfl.prediction.predictions import FloatArray, Predictions

SMALLEST_PROBABILITY = float(np.finfo(np.float32).tiny)


@metrics.register("negative-log-likelihood", aliases=("nll",))
class NegativeLogLikelihood(ExampleMetric):
    """Mean negative logarithm of the probability given to the label.

    mean_n −log p̄_{n, y_n}, in [0, 87.34] nats: a proper score, 0 only for certain and right
    predictions, log C for uniform ones. Probabilities are floored at 1.18e-38 (float32's smallest
    normal number), so that one label held impossible does not make the mean infinite.

    Example:
        >>> from bfl.prediction import PredictionStatistics
        >>> predictions = PredictionStatistics.of([[[0.5, 0.5], [0.0, 1.0]]]).result()
        >>> round(NegativeLogLikelihood().compute(predictions, [0, 1]), 4)
        0.3466

    Reference:
        Fischer et al. (2024), "Federated Bayesian Deep Learning", section 3.3; Gneiting and
        Raftery (2007), "Strictly proper scoring rules, prediction, and estimation", section 4.1.
    """

    higher_is_better: ClassVar[bool] = False
    retention: ClassVar[bool] = True

    def values(self, predictions: Predictions, labels: npt.ArrayLike) -> FloatArray:
        """Return (N,) negative log-likelihoods in nats."""
        true = checked_labels(predictions, labels)
        probability = predictions.mean_probability[np.arange(true.size), true]
        return np.asarray(-np.log(np.maximum(probability, SMALLEST_PROBABILITY)) + 0.0)
