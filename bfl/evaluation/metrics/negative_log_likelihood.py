"""Negative log-likelihood."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics.base import ExampleMetric, checked_labels, metrics
from bfl.evaluation.prediction.predictions import FloatArray, Predictions


@metrics.register("negative-log-likelihood", aliases=("nll",))
class NegativeLogLikelihood(ExampleMetric):
    """Mean negative logarithm of the probability given to the label.

    mean_n −log p̄_{n, y_n}, at least 0, in nats: a proper score, 0 only for certain and right
    predictions, log C for uniform ones. The logarithm is that of the mean over the samples'
    log-softmax, so that nothing underflows and there is no largest value: a label whose logit is
    1,000 below the others costs 1,000 nats. Only of given probabilities, whose logits are not
    known, a 0 counts as the smallest number above 0 in float64, 744.44 nats.

    Example:
        >>> from bfl.evaluation.prediction import PredictionStatistics
        >>> predictions = PredictionStatistics.of([[[0.5, 0.5], [0.0, 1.0]]]).result()
        >>> round(NegativeLogLikelihood().compute(predictions, [0, 1]), 4)
        0.3466

    Reference:
        Fischer et al. (2024), "Federated Bayesian Deep Learning", section 3.3; Gneiting and
        Raftery (2007), "Strictly proper scoring rules, prediction, and estimation", section 4.1.
    """

    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)
    retention: ClassVar[bool] = True

    def values(self, predictions: Predictions, labels: npt.ArrayLike) -> FloatArray:
        """Return (N,) negative log-likelihoods in nats."""
        true = checked_labels(predictions, labels)
        return np.asarray(-predictions.log_mean_probability[np.arange(true.size), true] + 0.0)
