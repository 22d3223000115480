"""Regression: predictions that are mixtures of Gaussians, and metrics of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.encoding import LEAST_NOISE, Column
from bfl.evaluation.prediction.predictions import FloatArray, finite_logits

RANKED_BY = "predictive-variance"
"""The uncertainty by which examples are left out of retention curves."""

LEVEL = 0.9
"""Probability of the interval of ``interval-coverage``."""

TAIL = (1.0 - LEVEL) / 2
"""Probability below that interval, and above it."""

FAMILIARITY, INTERVAL = "familiarity", "interval-deviations"
"""The names of what a closing round has found, in ``predictions.npz``."""

MOST_HALVINGS = 100
"""Most steps of a bisection."""


def squared_errors(predictions: Mixtures, targets: FloatArray) -> FloatArray:
    """Return the (N,) squared differences of predicted means and targets.

    Source: Hernández-Lobato and Adams (2015), "Probabilistic backpropagation for scalable learning
    of Bayesian neural networks", section 5, whose root of the mean is ``root-mean-squared-error``.
    """
    return np.asarray((predictions.mean - targets) ** 2)


def negative_log_likelihoods(predictions: Mixtures, targets: FloatArray) -> FloatArray:
    """Return −log mean_m N(y; μ_m, σ_m²), (N,), in nats; of a density, it may be negative.

    Source: as ``squared_errors``.
    """
    from scipy.special import logsumexp

    variances = predictions.variances
    squares = (targets - predictions.means) ** 2
    each = -0.5 * (np.log(2 * np.pi * variances) + squares / variances)
    return np.asarray(np.log(predictions.samples) - logsumexp(each, axis=0))


def ranked_probability_scores(predictions: Mixtures, targets: FloatArray) -> FloatArray:
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


def covered(predictions: Mixtures, targets: FloatArray) -> FloatArray:
    """Return (N,) ones for targets within the interval of 90 %, and zeros.

    Source: Gneiting et al. (2007), "Probabilistic forecasts, calibration and sharpness", section 3.
    """
    if predictions.interval_deviations is not None:
        apart = np.abs(targets - predictions.mean) / predictions.deviation
        return np.asarray(apart <= predictions.interval_deviations, np.float64)
    place = predictions.distribution(targets)
    return np.asarray((place >= TAIL) & (place <= 1.0 - TAIL), np.float64)


def _absolute(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return E|X| of X ~ N(mean, variance)."""
    from scipy.special import ndtr

    deviation = np.sqrt(variance)
    standard = mean / deviation
    density = np.exp(-0.5 * standard**2) / np.sqrt(2 * np.pi)
    return np.asarray(2 * deviation * density + mean * (2 * ndtr(standard) - 1))


Values = Callable[["Mixtures", FloatArray], FloatArray]

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
REGRESSION = {ERROR: False, "continuous-ranked-probability-score": False, "interval-coverage": None}
"""Metrics that numbers alone have: True if higher is better; None: neither, as of a coverage."""


@dataclass(frozen=True)
class Mixtures:
    """Predictive distributions of N examples, each an equal mixture of M Gaussians.

    The law of total variance splits a mixture's variance: the mean of the Gaussians' variances is
    noise in the data (aleatoric), and the variance of their means is what the model does not know
    (epistemic).

    Source: Kendall and Gal (2017), "What uncertainties do we need in Bayesian deep learning for
    computer vision?", section 3.1 and Eq. 9.

    Attributes:
        means: (M, N) the Gaussians' means, in the unit of the target.
        variances: (M, N) their variances, above 0.
        interval_deviations: Half the width of the interval of 90 % in standard deviations, where a
            closing round has found it.
        familiarity: (N,) as of ``Predictions``.
        warnings: N tuples of what is unusual about each row; empty: nobody has looked.
    """

    means: FloatArray
    variances: FloatArray
    interval_deviations: float | None = None
    familiarity: FloatArray | None = None
    warnings: tuple[tuple[str, ...], ...] = ()

    @property
    def samples(self) -> int:
        """The number M of Monte Carlo samples."""
        return int(self.means.shape[0])

    @property
    def examples(self) -> int:
        """The number N of examples."""
        return int(self.means.shape[1])

    @property
    def mean(self) -> FloatArray:
        """The (N,) means."""
        return np.asarray(self.means.mean(axis=0))

    @property
    def aleatoric(self) -> FloatArray:
        """The (N,) means of the Gaussians' variances."""
        return np.asarray(self.variances.mean(axis=0))

    @property
    def epistemic(self) -> FloatArray:
        """The (N,) variances of the Gaussians' means."""
        return np.asarray(self.means.var(axis=0))

    @property
    def deviation(self) -> FloatArray:
        """The (N,) standard deviations of the mixtures."""
        return np.sqrt(self.aleatoric + self.epistemic)

    @property
    def uncertainty(self) -> Mapping[str, FloatArray]:
        """The (N,) uncertainties by name: the variance, and its two parts."""
        aleatoric, epistemic = self.aleatoric, self.epistemic
        return {"aleatoric": aleatoric, "epistemic": epistemic, RANKED_BY: aleatoric + epistemic}

    def values(self, answers: FloatArray) -> Mapping[str, tuple[FloatArray, bool]]:
        """Return the values of ``CURVES``, of which lower is better."""
        return {name: (of(self, answers), False) for name, of in CURVES.items()}

    def metrics(self, answers: FloatArray) -> dict[str, float]:
        """Return the means of all values over the examples by name; of squares, the root of it."""
        means = {name: float(of(self, answers).mean()) for name, of in VALUES.items()}
        return {ERROR: float(np.sqrt(means.pop(SQUARED))), **means}

    def take(self, positions: npt.NDArray[np.int64]) -> Mixtures:
        """Return the predictions for the examples at some positions."""
        return replace(
            self,
            means=self.means[:, positions],
            variances=self.variances[:, positions],
            familiarity=None if self.familiarity is None else self.familiarity[positions],
            warnings=tuple(self.warnings[at] for at in positions) if self.warnings else (),
        )

    def distribution(self, values: npt.ArrayLike) -> FloatArray:
        """Return F(y) of each example, (N,), for a value y each."""
        from scipy.special import ndtr

        each = ndtr((np.asarray(values) - self.means) / np.sqrt(self.variances))
        return np.asarray(each.mean(axis=0))

    def quantile(self, probability: float) -> FloatArray:
        """Return y with F(y) = ``probability`` in (0, 1) of each example, (N,), by bisection.

        It lies between the least and the greatest of that quantile of the Gaussians.
        """
        from scipy.special import ndtri

        each = self.means + ndtri(probability) * np.sqrt(self.variances)
        low, high = each.min(axis=0), each.max(axis=0)
        near = 1e-10 * np.sqrt(self.variances.min(axis=0))
        # A bound that halving no longer moves is as near as doubles are.
        for _ in range(MOST_HALVINGS):
            if (high - low <= near).all():
                break
            middle = (low + high) / 2
            below = self.distribution(middle) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray((low + high) / 2)

    @property
    def interval(self) -> tuple[FloatArray, FloatArray]:
        """The (N,) bounds of the interval of 90 % that ``interval-coverage`` judges."""
        if self.interval_deviations is not None:
            half = self.interval_deviations * self.deviation
            return self.mean - half, self.mean + half
        return self.quantile(TAIL), self.quantile(1.0 - TAIL)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all as arrays by name, but for ``interval``, which takes longer."""
        named = {"mean": self.mean, "samples": np.array(self.samples), **self.uncertainty}
        of_closing = {FAMILIARITY: self.familiarity, INTERVAL: self.interval_deviations}
        named |= {name: np.asarray(v) for name, v in of_closing.items() if v is not None}
        return {**named, "means": self.means, "variances": self.variances}


class MixtureStatistics:
    """The Gaussians that samples of a network predict.

    Args:
        target: Mean and deviation of the targets that the network has been trained on: it predicts
            what is left when these are taken out.
    """

    def __init__(self, target: Column) -> None:
        self._target = target
        self._means: list[FloatArray] = []
        self._variances: list[FloatArray] = []

    def add_logits(self, outputs: npt.ArrayLike) -> None:
        """Add a sample's outputs (N, 2): a mean, and ρ of a variance softplus(ρ) + 1e-6."""
        given = finite_logits(outputs)
        self.add_gaussians(given[:, 0], np.logaddexp(0.0, given[:, 1]) + LEAST_NOISE)

    def add_gaussians(self, means: FloatArray, variances: FloatArray) -> None:
        """Add a sample's Gaussians: (N,) means and variances of what the network predicts."""
        scale = self._target.deviation
        self._means.append(self._target.mean + scale * means)
        self._variances.append(scale**2 * variances)

    def result(self) -> Mixtures:
        """Return the mixtures of all that were added."""
        return Mixtures(np.stack(self._means), np.stack(self._variances))
