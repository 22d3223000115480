"""Predictions of a number for N examples: M Gaussians each, one for each Monte Carlo sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.encoding import LEAST_NOISE, Column
from bfl.errors import NotFiniteError
from bfl.evaluation.prediction.statistics import PredictionStatistics

FloatArray = npt.NDArray[np.float64]

RANKED_BY = "predictive-variance"
"""The uncertainty by which examples are left out of retention curves."""


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
    """

    means: FloatArray
    variances: FloatArray

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
    def uncertainty(self) -> Mapping[str, FloatArray]:
        """The (N,) uncertainties by name: the variance, and its two parts."""
        aleatoric, epistemic = self.aleatoric, self.epistemic
        whole = aleatoric + epistemic
        return {
            "aleatoric": aleatoric,
            "epistemic": epistemic,
            RANKED_BY: whole,
        }

    def take(self, positions: npt.NDArray[np.int64]) -> Mixtures:
        """Return the predictions for the examples at some positions."""
        return Mixtures(self.means[:, positions], self.variances[:, positions])

    def distribution(self, values: npt.ArrayLike) -> FloatArray:
        """Return F(y) of each example, (N,), for a value y each."""
        from scipy.special import ndtr

        each = ndtr((np.asarray(values) - self.means) / np.sqrt(self.variances))
        return np.asarray(each.mean(axis=0))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all as arrays by name."""
        named = {"mean": self.mean, "samples": np.array(self.samples), **self.uncertainty}
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
        """Add a sample's outputs (N, 2): a mean, and ρ of a variance softplus(ρ) + 1e-6.

        Raises:
            NotFiniteError: They are not finite.
        """
        given = np.asarray(outputs, np.float64)
        if bad := int(given.size - np.count_nonzero(np.isfinite(given))):
            raise NotFiniteError(bad, given.size)
        scale = self._target.deviation
        self._means.append(self._target.mean + scale * given[:, 0])
        self._variances.append(scale**2 * (np.logaddexp(0.0, given[:, 1]) + LEAST_NOISE))

    def result(self) -> Mixtures:
        """Return the mixtures of all that were added."""
        return Mixtures(np.stack(self._means), np.stack(self._variances))


def statistics_of(target: Column | None) -> Callable[[], Any]:
    """Return what makes the statistics of a network's predictions.

    Args:
        target: Mean and deviation of what it predicts; None: it predicts classes.
    """
    return partial(MixtureStatistics, target) if target else PredictionStatistics
