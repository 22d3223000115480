"""Accuracy, and two proper scores: the Brier score and the negative log-likelihood."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics.base import ExampleMetric, checked_labels, metrics
from bfl.evaluation.prediction.predictions import FloatArray, Predictions

Z = 1.959964
"""Quantile of the normal distribution of intervals of 95 %."""


def wilson_interval(
    share: npt.ArrayLike, count: npt.ArrayLike, z: float = Z
) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of the intervals, by default of 95 %, of shares of a count of examples.

    A share is within z of its own standard deviations of the mean of a binomial distribution.

    Source: Wilson (1927), "Probable inference, the law of succession, and statistical inference".
    """
    p, n = np.asarray(share, np.float64), np.asarray(count, np.float64)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = np.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2) * (z / (1 + z**2 / n))
    return centre - half, centre + half


def unpaired_interval(one: float, other: float, count: int, level: float) -> tuple[float, float]:
    """Return the interval, at a level, of a share of a count of examples minus another such share.

    Source: Newcombe (1998), "Interval estimation for the difference between independent
    proportions", method 10. A paired one is narrower where both are right on the same examples.
    """
    from scipy.special import ndtri

    shares = np.array([one, other])
    low, high = wilson_interval(shares, count, float(ndtri((1.0 + level) / 2.0)))
    below, above = shares - low, high - shares
    gain = one - other
    return gain - math.hypot(below[0], above[1]), gain + math.hypot(above[0], below[1])


def paired_interval(differences: FloatArray, level: float = 0.95) -> tuple[float, float]:
    """Return the interval, at a level, of how much more examples one model has right than another.

    Args:
        differences: Of each example 1, 0 or −1 (N,): right by the first alone, as many, or by the
            second alone.

    Source: Agresti and Min (2005), "Simple improved confidence intervals for comparing matched
    proportions". Each of the four cells gets z² / 8 examples more, at 95 % their half an example.
    """
    from scipy.special import ndtri

    z = float(ndtri((1.0 + level) / 2.0))
    count = differences.size + z**2 / 2.0
    centre = float(differences.sum()) / count
    square = (float(np.square(differences).sum()) + z**2 / 4.0) / count
    half = z * math.sqrt((square - centre**2) / count)
    return centre - half, centre + half


def gap_of(
    predictions: Predictions, labels: npt.NDArray[np.int64], own: npt.NDArray[np.bool_]
) -> tuple[float, float, float]:
    """Return how far the mean prediction of some examples (N,) lies above what was observed.

    With the ends that Wilson's interval gives: few rows cannot carry a calibration error by bins.
    Of two classes it is the second one's probability above its share, else the confidence.
    """
    predicted, observed = predictions.confidence, predictions.predicted == labels
    if predictions.classes == 2:
        predicted, observed = predictions.mean_probability[:, 1], labels == 1
    mean, share = float(predicted[own].mean()), float(observed[own].mean())
    low, high = map(float, wilson_interval(share, int(own.sum())))
    return mean - share, mean - high, mean - low


@metrics.register("accuracy", aliases=("acc",))
class Accuracy(ExampleMetric):
    """Share of the examples whose most probable class is the label.

    mean_n [argmax_c p̄_nc = y_n], in [0, 1] without unit. Of classes with equally high probability
    the lowest is predicted.

    Reference:
        Fischer et al. (2024), "Federated Bayesian Deep Learning", sections 2.3 and 3.3.
    """

    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    share_of_examples: ClassVar[bool] = True
    retention: ClassVar[bool] = True

    def values(self, predictions: Predictions, labels: npt.ArrayLike) -> FloatArray:
        """Return (N,) 1 where the prediction is right and 0 elsewhere."""
        right = predictions.predicted == checked_labels(predictions, labels)
        return np.asarray(right, dtype=np.float64)


@metrics.register("brier-score", aliases=("brier",))
class BrierScore(ExampleMetric):
    """Mean squared distance between the probabilities and the one-hot label.

    mean_n Σ_c (p̄_nc − [c = y_n])², summed over the classes and not averaged, in [0, 2] without
    unit: a proper score, 0 only for certain and right predictions, 2 for certain and wrong ones.

    Reference:
        Brier (1950), "Verification of forecasts expressed in terms of probability", Eq. 2.
    """

    higher_is_better: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float]] = (0.0, 2.0)

    def values(self, predictions: Predictions, labels: npt.ArrayLike) -> FloatArray:
        """Return (N,) squared distances in [0, 2]."""
        true = checked_labels(predictions, labels)
        difference = predictions.mean_probability.copy()
        difference[np.arange(true.size), true] -= 1.0
        return np.asarray((difference**2).sum(axis=1))


@metrics.register("negative-log-likelihood", aliases=("nll",))
class NegativeLogLikelihood(ExampleMetric):
    """Mean negative logarithm of the probability given to the label, in nats.

    mean_n −log p̄_{n, y_n}, at least 0, in nats: a proper score, 0 only for certain and right
    predictions, log C for uniform ones. The logarithm is that of the mean over the samples'
    log-softmax, so that nothing underflows and there is no largest value: a label whose logit is
    1,000 below the others costs 1,000 nats. Only of given probabilities, whose logits are not
    known, a 0 counts as the smallest number above 0 in float64, 744.44 nats.

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
