"""The uncertainties of predictions: entropies, and their aleatoric and epistemic parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from bfl.errors import ConfigurationError
from bfl.evaluation.metrics.base import Metric, exact_mean, metrics
from bfl.evaluation.prediction.predictions import (
    FloatArray,
    Predictions,
    PredictionStatistics,
    normalized_entropy,
)
from bfl.evaluation.regression import Mixtures
from bfl.registry import Component, Registry


class Uncertainty(Component):
    """Uncertainty of each prediction.

    Attributes:
        retention: Whether retention curves are computed by this uncertainty. One that ranks the
            examples nearly as another does says so with False and leaves the figures readable.
    """

    retention: ClassVar[bool] = True

    @abstractmethod
    def measure(self, predictions: Predictions) -> FloatArray:
        """Return uncertainties (N,), at least 0, higher where the prediction is less certain."""


TRIED = 32
"""Predictions that measures are tried on."""

uncertainties: Registry[Uncertainty] = Registry("uncertainty", "bfl.evaluation.uncertainty")


def measure_all(
    predictions: Predictions | Mixtures, settings: Mapping[str, Any] | None = None
) -> dict[str, FloatArray]:
    """Return every registered uncertainty and every score of each example, (N,) each, by name."""
    if isinstance(predictions, Mixtures):
        return dict(predictions.uncertainty)
    registered = {
        name: uncertainties.create(name, settings).measure(predictions)
        for name in uncertainties.names()
    }
    return {**registered, **predictions.scores}


def check_measures(classes: int, settings: Mapping[str, Any] | None = None) -> None:
    """Try every metric and uncertainty on a few made-up predictions, before clients train."""
    labels = np.arange(TRIED) % classes
    drawn = np.random.default_rng(0).dirichlet(np.ones(classes), (2, TRIED))
    predictions = PredictionStatistics.of(drawn).result()
    for registry in (metrics, uncertainties):
        for part in registry.classes():
            try:
                made = registry.create(part.name, settings)
                if isinstance(made, Metric):
                    float(made.compute(predictions, labels))
                elif np.shape(made.measure(predictions)) != (TRIED,):
                    raise ValueError(f"expected numbers ({TRIED},)")
            except Exception as error:
                raise ConfigurationError(
                    f"{registry.kind} '{part.name}' of {part.__module__} fails on {TRIED} "
                    f"predictions of {classes} classes: {error!r}"
                ) from error


def mean_uncertainties(
    predictions: Predictions | Mixtures, settings: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Return the mean of every registered uncertainty under its name, as ``mean-epistemic``."""
    return {
        f"mean-{name}": exact_mean(values)
        for name, values in measure_all(predictions, settings).items()
    }


@uncertainties.register("aleatoric")
class Aleatoric(Uncertainty):
    """Uncertainty of the data, which more data would not reduce (trace of Kwon et al.'s matrix).

    tr mean_m (diag(p̂_m) − p̂_m ⊗ p̂_m) = 1 − mean_m Σ_c p̂_mc², in [0, 1 − 1/C] without unit.
    With the epistemic uncertainty it adds up to 1 − Σ_c p̄_c².

    Reference:
        Kwon et al. (2020), "Uncertainty quantification using Bayesian neural networks in
        classification"; Fischer et al. (2024), Eq. 9, first term.
    """

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return the aleatoric trace of each example: (N,) in [0, 1 − 1/C]."""
        return predictions.aleatoric


@uncertainties.register("expected-entropy")
class ExpectedEntropy(Uncertainty):
    """Aleatoric part of the predictive entropy: the mean entropy of the samples.

    mean_m H̃[p̂_m], in [0, 1] without unit: a share of log C, as the normalised predictive entropy
    H̃[p̄] is (Eq. 8 of Fischer et al. 2024). With the mutual information it adds up to that.

    Reference:
        Depeweg et al. (2018), "Decomposition of uncertainty in Bayesian deep learning for
        efficient and risk-sensitive learning", section 3.
    """

    retention: ClassVar[bool] = False  # it ranks the examples nearly as the aleatoric trace does

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return the mean entropy of each example's samples: (N,) in [0, 1]."""
        return predictions.expected_entropy


@uncertainties.register("mutual-information")
class MutualInformation(Uncertainty):
    """Epistemic part of the predictive entropy: what the label would tell about the parameters.

    I[y; θ] / log C = H̃[p̄] − mean_m H̃[p̂_m], in [0, 1] without unit: a share of log C, as the
    normalised predictive entropy is (Eq. 8 of Fischer et al. 2024). It is exactly 0 for identical
    samples; elsewhere rounding below 0 is cut off.

    Reference:
        Houlsby et al. (2011), "Bayesian active learning for classification and preference
        learning", Eq. 2; Depeweg et al. (2018), section 3.
    """

    retention: ClassVar[bool] = False  # it ranks the examples nearly as the epistemic trace does

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return the mutual information of each example's label and parameters: (N,) in [0, 1]."""
        whole = normalized_entropy(predictions.mean_probability)
        return np.asarray(np.maximum(whole - predictions.expected_entropy, 0.0))


@uncertainties.register("predictive-entropy", aliases=("normalized-entropy",))
class PredictiveEntropy(Uncertainty):
    """Entropy of the mean prediction as a share of the largest possible.

    H̃ = −Σ_c p̄_c log p̄_c / log C, in [0, 1] without unit: 0 for a certain prediction, 1 for the
    uniform one. It is the whole uncertainty, of the data and of the model: the sum of the expected
    entropy and the mutual information, which are in the same unit.

    Reference:
        Fischer et al. (2024), "Federated Bayesian Deep Learning", Eq. 8, after Park and Simoff
        (2015).
    """

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return H̃ of each example: (N,) in [0, 1]."""
        return normalized_entropy(predictions.mean_probability)


@uncertainties.register("epistemic")
class Epistemic(Uncertainty):
    """Uncertainty of the model, which more data would reduce (trace of Kwon et al.'s matrix).

    tr mean_m (p̂_m − p̄) ⊗ (p̂_m − p̄) = mean_m Σ_c (p̂_mc − p̄_c)², in [0, 1 − 1/C] without unit.
    It is exactly 0 for identical samples, hence for every deterministic network.

    Reference:
        Kwon et al. (2020), "Uncertainty quantification using Bayesian neural networks in
        classification"; Fischer et al. (2024), Eq. 9, second term.
    """

    def measure(self, predictions: Predictions) -> FloatArray:
        """Return the epistemic trace of each example: (N,) in [0, 1 − 1/C]."""
        return predictions.epistemic
