"""What an ensemble predicts, judged: its own numbers and each member's accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics import evaluate
from bfl.evaluation.prediction import Predictions, PredictionStatistics
from bfl.evaluation.uncertainty import mean_uncertainties

ENSEMBLE = "ensemble-"
"""What stands before the name of each number of an ensemble."""


@dataclass(frozen=True)
class JudgedEnsemble:
    """An ensemble's predictions of labelled images.

    Attributes:
        predictions: Over all members.
        labels: (N,) true classes.
        accuracies: Each member's own accuracy, by its name.
    """

    predictions: Predictions
    labels: npt.NDArray[np.int64]
    accuracies: Mapping[str, float]

    def round_metrics(self, settings: Mapping[str, Any]) -> dict[str, float]:
        """Return metrics, mean uncertainties and the members' mean accuracy, as ``ensemble-NAME``.

        Args:
            settings: The configuration, of which each component takes its own keys.
        """
        own = {
            **evaluate(self.predictions, self.labels, settings),
            **mean_uncertainties(self.predictions, settings),
            "member-accuracy": float(np.mean(list(self.accuracies.values()))),
        }
        return prefixed(own)


def prefixed(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return numbers under the names that an ensemble's have."""
    return {f"{ENSEMBLE}{name}": value for name, value in numbers.items()}


def judge_ensemble(
    members: Iterable[tuple[str, npt.NDArray[Any]]], labels: npt.NDArray[np.int64]
) -> JudgedEnsemble:
    """Return an ensemble's judgement, of one member at a time.

    Args:
        members: Names and logits (N, C).
        labels: (N,) true classes.
    """
    statistics, accuracies = PredictionStatistics(), {}
    for name, logits in members:
        statistics.add_logits(logits)
        accuracies[name] = float(np.mean(logits.argmax(axis=1) == labels))
    return JudgedEnsemble(statistics.result(), labels, accuracies)
