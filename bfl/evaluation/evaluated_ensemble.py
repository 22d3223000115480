"""Evaluation of an ensemble: its own numbers, and its members one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.aggregation.ensemble import LEFT_OUT
from bfl.errors import NotFiniteError
from bfl.evaluation.metrics import evaluate, metrics
from bfl.evaluation.metrics.expected_calibration_error import ExpectedCalibrationError
from bfl.evaluation.prediction import Predictions
from bfl.evaluation.prediction.predictions import PredictionStatistics
from bfl.evaluation.uncertainty import mean_uncertainties

ENSEMBLE = "ensemble-"
"""Prefix of the name of each number of an ensemble."""

MEMBER = "member"
BEST = "best-member"
KINDS = {"sample": "samples", "client": "clients"}
"""The members that are evaluated together as well, by what their names begin with."""

HISTOGRAM_BINS = 10


@dataclass(frozen=True)
class EvaluatedMember:
    """One model's predictions of labelled images.

    Attributes:
        confidence: (N,) probabilities of the predicted classes.
        right: (N,) whether these are the true ones.
    """

    confidence: npt.NDArray[np.float64]
    right: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, logits: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> EvaluatedMember:
        """Return what logits (N, C) say of images with labels (N,)."""
        given = logits.astype(np.float64)
        above = given - given.max(axis=1, keepdims=True)
        return cls(1.0 / np.exp(above).sum(axis=1), logits.argmax(axis=1) == labels)

    @property
    def accuracy(self) -> float:
        """The share of the images that it predicts right."""
        return float(np.mean(self.right))


@dataclass(frozen=True)
class EvaluatedEnsemble:
    """An ensemble's predictions of labelled images.

    Attributes:
        labels: (N,) true classes.
        members: Each member's own, by its name.
        left_out: The names of those whose logits are not finite: they are no members.
    """

    predictions: Predictions
    labels: npt.NDArray[np.int64]
    members: Mapping[str, EvaluatedMember]
    left_out: Sequence[str] = ()

    @property
    def accuracies(self) -> dict[str, float]:
        """Each member's own accuracy, by its name."""
        return {name: member.accuracy for name, member in self.members.items()}

    def round_metrics(self, settings: Mapping[str, Any]) -> dict[str, float]:
        """Return metrics, mean uncertainties and what the members are like, as ``ensemble-NAME``.

        ``member-accuracy`` is the members' mean accuracy, ``best-member-accuracy`` that of the
        best; of samples and of clients there are the mean accuracy and calibration error of each by
        itself; and where models are left out, ``left-out`` is how many.
        """
        accuracies = list(self.accuracies.values())
        own = {
            **evaluate(self.predictions, self.labels, settings),
            **mean_uncertainties(self.predictions, settings),
            f"{MEMBER}-accuracy": float(np.mean(accuracies)),
            f"{BEST}-accuracy": max(accuracies),
        }
        if self.left_out:
            own[LEFT_OUT] = float(len(self.left_out))
        calibration = metrics.create(ExpectedCalibrationError.name, settings)
        assert isinstance(calibration, ExpectedCalibrationError)
        for kind, of_it in self._kinds().items():
            errors = [calibration.bins_of(m.confidence, m.right).error for m in of_it]
            own[f"{kind}-accuracy"] = float(np.mean([m.accuracy for m in of_it]))
            own[f"{kind}-{calibration.name}"] = float(np.mean(errors))
        return prefixed(own)

    def confidences(self) -> dict[str, dict[str, list[float]]]:
        """Return how many images a sample, and a client, predicts right and wrong by confidence.

        Means over the samples and over the clients, in ten bins of equal width that are open below.

        Source: Chen and Chao (2021), FedBE, Figs. 1 (c) and 9.
        """
        bins, found = ExpectedCalibrationError(calibration_bins=HISTOGRAM_BINS), {}
        for kind, of_it in self._kinds().items():
            right = [bins.bins_of(m.confidence[m.right], m.right[m.right]) for m in of_it]
            wrong = [bins.bins_of(m.confidence[~m.right], m.right[~m.right]) for m in of_it]
            found[kind] = {
                "right": np.mean([each.count for each in right], axis=0).tolist(),
                "wrong": np.mean([each.count for each in wrong], axis=0).tolist(),
            }
        return found

    def _kinds(self) -> dict[str, list[EvaluatedMember]]:
        found: dict[str, list[EvaluatedMember]] = {}
        for name, member in self.members.items():
            kind = KINDS.get(name.split("-")[0])
            if kind:
                found.setdefault(kind, []).append(member)
        return found


def prefixed(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return numbers under the names that an ensemble's have."""
    return {f"{ENSEMBLE}{name}": value for name, value in numbers.items()}


def names_of_members() -> tuple[str, ...]:
    """Return what an ensemble's numbers of its members are called, without ``ensemble-``."""
    errors = [f"{kind}-{ExpectedCalibrationError.name}" for kind in KINDS.values()]
    return (*(f"{of}-accuracy" for of in (MEMBER, BEST, *KINDS.values())), *errors)


def of_a_posterior(number: str) -> str:
    """Return what a posterior's number of that kind is called; other names as they are."""
    of = number.removeprefix(ENSEMBLE)
    if of in names_of_members() and of != number:
        prefix = next(p for p in (MEMBER, BEST, *KINDS.values()) if of.startswith(f"{p}-"))
        return of.removeprefix(f"{prefix}-")
    return of


def evaluate_ensemble(
    members: Iterable[tuple[str, npt.NDArray[Any]]], labels: npt.NDArray[np.int64]
) -> EvaluatedEnsemble:
    """Return an ensemble's evaluation, of one member at a time: names and logits (N, C)."""
    together, evaluated = MemberPredictions(), {}
    for name, logits in members:
        if together.add(name, logits):
            evaluated[name] = EvaluatedMember.of(logits, labels)
    return EvaluatedEnsemble(together.result(), labels, evaluated, tuple(together.left_out))


class MemberPredictions:
    """The mean predictions of an ensemble's members; one whose logits are not finite is left out.

    One client may send values so large, and finite, that its model's logits overflow: that must not
    cost the others' predictions.
    """

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._statistics = PredictionStatistics()
        self._bad = self._of = 0

    def add(self, name: str, logits: npt.ArrayLike) -> bool:
        """Take in a member's logits (N, C); return whether they are finite and it takes part."""
        try:
            self._statistics.add_logits(logits)
        except NotFiniteError as error:
            self.left_out.append(name)
            self._bad += error.bad
            self._of += error.of
            return False
        return True

    def result(self) -> Predictions:
        """Return the mean predictions of the members that take part."""
        if self.left_out and not self._statistics.samples:
            raise NotFiniteError(self._bad, self._of)
        return self._statistics.result()
