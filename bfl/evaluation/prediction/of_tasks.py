"""Statistics of a network's predictions by the task that it was trained for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bfl.data.datasets.encoding import Column
from bfl.evaluation.multilabel import LabelStatistics
from bfl.evaluation.prediction.statistics import PredictionStatistics
from bfl.evaluation.regression import MixtureStatistics


def statistics_of(task: str, target: Column | None) -> Callable[[], Any]:
    """Return what makes the statistics of a network's predictions.

    Args:
        task: The key ``task``.
        target: Of a regression, mean and deviation of what it predicts.
    """
    if target:
        return partial(MixtureStatistics, target)
    return LabelStatistics if task == "multi-label" else PredictionStatistics
