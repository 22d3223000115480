"""Base class and registry of the uncertainties."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from bfl.errors import ConfigurationError
from bfl.evaluation.metrics.base import Metric, exact_mean, metrics
from bfl.evaluation.prediction.predictions import FloatArray, Predictions
from bfl.evaluation.prediction.statistics import PredictionStatistics
from bfl.evaluation.tasks import TaskPredictions
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
        """Return the uncertainty of each example.

        Args:
            predictions: The predictions for N examples.

        Returns:
            (N,) uncertainties, at least 0, higher where the prediction is less certain.
        """


TRIED = 32
"""Predictions that measures are tried on."""

uncertainties: Registry[Uncertainty] = Registry("uncertainty", "bfl.evaluation.uncertainty")


def measure_all(
    predictions: Predictions | TaskPredictions, settings: Mapping[str, Any] | None = None
) -> dict[str, FloatArray]:
    """Return every registered uncertainty and every score of each example, (N,) each, by name.

    Args:
        predictions: The predictions for N examples.
        settings: The configuration, of which each component takes its own keys.
    """
    if isinstance(predictions, TaskPredictions):
        return dict(predictions.uncertainty)
    registered = {
        name: uncertainties.create(name, settings).measure(predictions)
        for name in uncertainties.names()
    }
    return {**registered, **predictions.scores}


def check_measures(classes: int, settings: Mapping[str, Any] | None = None) -> None:
    """Try every metric and uncertainty on a few made-up predictions, before clients train.

    Args:
        classes: The number C of classes.
        settings: The configuration, of which each component takes its own keys.

    Raises:
        ConfigurationError: One raises an error, or gives other than numbers; it is named.
    """
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
                    f"{registry.kind} '{part.name}' of {part.__module__} fails on "
                    f"{TRIED} predictions of {classes} classes: {error!r}"
                ) from error


def mean_uncertainties(
    predictions: Predictions | TaskPredictions, settings: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Return the mean of every registered uncertainty under its name, as ``mean-epistemic``.

    Args:
        predictions: The predictions for N examples.
        settings: The configuration, of which each uncertainty takes its own keys.
    """
    return {
        f"mean-{name}": exact_mean(values)
        for name, values in measure_all(predictions, settings).items()
    }
