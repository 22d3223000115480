"""Size of prediction sets, and how often they hold the true class."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics.base import checked_labels
from bfl.evaluation.prediction.predictions import Predictions
from bfl.evaluation.regression import Mixtures

NUMBERS = ("coverage", "least-class-coverage", "size")


def set_numbers(predictions: Predictions | Mixtures, labels: npt.ArrayLike) -> dict[str, float]:
    """Return coverage and mean size of each kind of prediction set; nothing without any.

    Returns:
        ``NAME-coverage``, the share of sets that hold the true class; of the class of which it is
        the least, ``NAME-least-class-coverage``; ``NAME-size``, classes in a set, the mean.

    Source:
        Angelopoulos and Bates (2023), "Conformal prediction: a gentle introduction", section 4.
    """
    if isinstance(predictions, Mixtures):
        return {}
    true = checked_labels(predictions, labels)
    numbers: dict[str, float] = {}
    for name, held in predictions.sets.items():
        covered = held[np.arange(true.size), true]
        by_class = [covered[true == label].mean() for label in np.unique(true)]
        found = covered.mean(), min(by_class), held.sum(axis=1).mean()
        numbers |= {f"{name}-{what}": float(v) for what, v in zip(NUMBERS, found, strict=True)}
    return numbers
