"""Metrics of predicted numbers, and what a run says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from bfl.evaluation.regression.mixtures import FloatArray, Mixtures

Targets = npt.NDArray[np.float64]

LEVEL = 0.9
"""Probability of the interval of ``interval-coverage``."""


def squared_errors(predictions: Mixtures, targets: Targets) -> FloatArray:
    """Return the (N,) squared differences of predicted means and targets.

    Source: Hernández-Lobato and Adams (2015), "Probabilistic backpropagation for scalable learning
    of Bayesian neural networks", section 5, whose root of the mean is ``root-mean-squared-error``.
    """
    return np.asarray((predictions.mean - targets) ** 2)


def negative_log_likelihoods(predictions: Mixtures, targets: Targets) -> FloatArray:
    """Return −log mean_m N(y; μ_m, σ_m²), (N,), in nats; of a density, it may be negative.

    Source: as ``squared_errors``.
    """
    from scipy.special import logsumexp

    variances = predictions.variances
    squares = (targets - predictions.means) ** 2
    each = -0.5 * (np.log(2 * np.pi * variances) + squares / variances)
    return np.asarray(np.log(predictions.samples) - logsumexp(each, axis=0))


def ranked_probability_scores(predictions: Mixtures, targets: Targets) -> FloatArray:
    """Return ∫ (F(z) − 1[z ≥ y])² dz, (N,), in the target's unit: proper, and 0 is perfect.

    Source: Grimit et al. (2006), "The continuous ranked probability score for circular variables
    and its application to mesoscale forecast ensemble verification", Eqs. 5 and 6 (mixtures of
    Gaussians in closed form).
    """
    means, variances = predictions.means, predictions.variances
    near = _absolute(targets - means, variances).mean(axis=0)
    spread = np.zeros_like(near)
    # Row by row: all pairs of samples at once would take M times the memory.
    for mean, variance in zip(means, variances, strict=True):
        spread += _absolute(mean - means, variance + variances).mean(axis=0)
    return np.asarray(near - 0.5 * spread / predictions.samples)


def covered(predictions: Mixtures, targets: Targets) -> FloatArray:
    """Return (N,) ones for targets within the central interval of 90 %, and zeros.

    Source: Gneiting et al. (2007), "Probabilistic forecasts, calibration and sharpness", section 3.
    """
    tail = (1.0 - LEVEL) / 2
    place = predictions.distribution(targets)
    return np.asarray((tail <= place) & (place <= 1.0 - tail), np.float64)


def _absolute(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return E|X| of X ~ N(mean, variance)."""
    from scipy.special import ndtr

    deviation = np.sqrt(variance)
    standard = mean / deviation
    density = np.exp(-0.5 * standard**2) / np.sqrt(2 * np.pi)
    return np.asarray(2 * deviation * density + mean * (2 * ndtr(standard) - 1))


Values = Callable[[Mixtures, Targets], FloatArray]

SQUARED = "squared-error"
CURVES: Mapping[str, Values] = {
    SQUARED: squared_errors,
    "negative-log-likelihood": negative_log_likelihoods,
    "continuous-ranked-probability-score": ranked_probability_scores,
}
"""Values of each example of which there are retention curves, by name."""

VALUES: Mapping[str, Values] = {**CURVES, "interval-coverage": covered}
"""Values of each example, by the name of their mean."""

ERROR = "root-mean-squared-error"
REGRESSION = {
    ERROR: False,
    "continuous-ranked-probability-score": False,
    "interval-coverage": None,
}
"""Metrics that numbers alone have: True if higher is better; None: neither, as of a coverage."""


def regression_metrics(predictions: Mixtures, targets: Targets) -> dict[str, float]:
    """Return the means of all values over the examples by name; of squares, the root of it."""
    means = {name: float(of(predictions, targets).mean()) for name, of in VALUES.items()}
    return {ERROR: float(np.sqrt(means.pop(SQUARED))), **means}
