"""Base classes and registry of the metrics."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.errors import NotFiniteError
from bfl.evaluation.prediction.predictions import FloatArray, IntArray, Predictions
from bfl.evaluation.regression import CURVES, REGRESSION, Mixtures
from bfl.registry import Component, Registry


def checked_labels(predictions: Predictions, labels: npt.ArrayLike) -> IntArray:
    """Return the labels as (N,) integers in [0, C), or raise a ValueError."""
    given = np.asarray(labels)
    if given.shape != (predictions.examples,):
        raise ValueError(f"labels have shape {given.shape}; expected ({predictions.examples},)")
    if not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"labels have type {given.dtype}; expected integers")
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= predictions.classes:
        raise ValueError(
            f"labels lie in [{low}, {high}]; expected [0, {predictions.classes - 1}] for "
            f"{predictions.classes} classes"
        )
    return given.astype(np.int64)


def exact_mean(values: FloatArray) -> float:
    """Return the mean from the correctly rounded sum, so that no order of the values shows."""
    return math.fsum(values) / values.size


NOT_FINITE = "logits-not-finite"
"""Number of predictions whose logits are not finite; it stands in place of their metrics.

A round is evaluated before it is saved, so such logits must not end the run."""


@contextmanager
def count_not_finite(numbers: dict[str, float], prefix: str = "") -> Iterator[None]:
    """Have numbers say how many logits are not finite, in place of metrics under that prefix."""
    try:
        yield
    except NotFiniteError as error:
        numbers[f"{prefix}{NOT_FINITE}"] = float(error.bad)


ROUNDING = 1e-6
"""Tolerance beyond its bounds for a metric of rounded probabilities."""


class Metric(Component):
    """One number that says how good the predictions for N labelled examples are.

    Attributes:
        higher_is_better: Which way is up.
        bounds: The least and the greatest value that it has for any predictions, in its unit.
        share_of_examples: Whether it is the share of N examples for which something holds, and so
            a multiple of 1/N.
    """

    higher_is_better: ClassVar[bool]
    bounds: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    share_of_examples: ClassVar[bool] = False

    @classmethod
    def possible(cls, value: float) -> bool:
        """Return whether a number may be the metric of some predictions, rounding set aside."""
        least, greatest = cls.bounds
        return math.isfinite(value) and least - ROUNDING <= value <= greatest + ROUNDING

    @abstractmethod
    def compute(self, predictions: Predictions, labels: npt.ArrayLike) -> float:
        """Return the metric, from true classes (N,), integers in [0, C)."""


class ExampleMetric(Metric):
    """A metric that is the mean of one value per example.

    Attributes:
        retention: Whether retention curves are computed of this metric.
    """

    retention: ClassVar[bool] = False

    @abstractmethod
    def values(self, predictions: Predictions, labels: npt.ArrayLike) -> FloatArray:
        """Return the value of each example.

        Returns:
            (N,) finite values in the metric's unit.
        """

    def compute(self, predictions: Predictions, labels: npt.ArrayLike) -> float:
        """Return the mean over the examples; see ``Metric.compute``."""
        return exact_mean(self.values(predictions, labels))


metrics: Registry[Metric] = Registry("metric", "bfl.evaluation.metrics")


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics, those of other tasks among them."""
    return (*metrics.names(), *REGRESSION)


def metrics_by_task() -> dict[str, tuple[str, ...]]:
    """Return the names of the metrics of each value of the key ``task``."""
    return {
        "classification": metrics.names(),
        "regression": (*REGRESSION, "negative-log-likelihood"),
    }


def higher_is_better(name: str) -> bool | None:
    """Return which way is up for a metric, of numbers too, or the area of a retention curve of it.

    None: no side is better, or it is none of these.
    """
    ways: dict[str, bool | None] = {m.name: m.higher_is_better for m in metrics.classes()}
    ways = {**ways, **dict.fromkeys(CURVES, False), **REGRESSION}
    named = (m for m in ways if name == m or name.startswith(f"retention-area-{m}-"))
    return ways.get(next(named, ""))


def evaluate(
    predictions: Predictions | Mixtures,
    labels: npt.ArrayLike,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Return every registered metric by name, by the labels (N,); of another task, its own."""
    if isinstance(predictions, Mixtures):
        return predictions.metrics(np.asarray(labels))
    checked = checked_labels(predictions, labels)
    return {
        name: metrics.create(name, settings).compute(predictions, checked)
        for name in metrics.names()
    }


OF_SETS = ("coverage", "least-class-coverage", "size")


def set_numbers(predictions: Predictions | Mixtures, labels: npt.ArrayLike) -> dict[str, float]:
    """Return numbers of each kind of prediction set; nothing without any.

    ``NAME-coverage`` is the share of sets that hold the true class; of the class of which it is the
    least, ``NAME-least-class-coverage``; ``NAME-size``, classes in a set, the mean.

    Source: Angelopoulos and Bates (2023), "Conformal prediction: a gentle introduction", section 4.
    """
    if isinstance(predictions, Mixtures):
        return {}
    true = checked_labels(predictions, labels)
    numbers: dict[str, float] = {}
    for name, held in predictions.sets.items():
        covered = held[np.arange(true.size), true]
        by_class = [covered[true == label].mean() for label in np.unique(true)]
        found = covered.mean(), min(by_class), held.sum(axis=1).mean()
        numbers |= {f"{name}-{what}": float(v) for what, v in zip(OF_SETS, found, strict=True)}
    return numbers
