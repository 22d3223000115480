"""Multi-label predictions: how probable each of L labels is for an example, and their metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.evaluation.prediction.predictions import Answers, FloatArray, TaskPredictions
from bfl.evaluation.prediction.statistics import finite_logits

BINS = 15
"""Bins of equal width of the expected calibration error, as of a classifier's by default."""

LABELS = {
    "hamming-loss": False,
    "macro-f1": True,
    "micro-f1": True,
    "mean-average-precision": True,
}
"""Metrics that multi-label predictions alone have: True if higher is better."""


def bernoulli_entropy(log_present: FloatArray, log_absent: FloatArray) -> FloatArray:
    """Return the entropies of labels as shares of log 2, in [0, 1], from both log-probabilities."""
    nats = -(np.exp(log_present) * log_present + np.exp(log_absent) * log_absent)
    return np.asarray(np.clip(nats / math.log(2.0), 0.0, 1.0))


@dataclass(frozen=True)
class LabelPredictions(TaskPredictions):
    """Predictions for N examples and L labels: means of M Bernoulli probabilities a label.

    An example's uncertainties are means over its labels. The entropy of the mean probability
    (total) is the mean entropy of the samples (aleatoric) and the mutual information of the label
    and the weights (epistemic).

    Source: Depeweg et al. (2018), "Decomposition of uncertainty in Bayesian deep learning for
    efficient and risk-sensitive learning", section 3, for each label.

    Attributes:
        log_present: (N, L) log p̄ in nats, finite where p̄ is 0 by underflow; p̄ = mean_m p_m.
        log_absent: (N, L) log(1 − p̄).
        expected_entropy: (N,) mean entropy over samples and labels, as a share of log 2.
        samples: The number M of Monte Carlo samples.
    """

    file: ClassVar[str] = "labels.npz"
    ranked_by: ClassVar[tuple[str, ...]] = ("predictive-entropy", "aleatoric", "epistemic")

    log_present: FloatArray
    log_absent: FloatArray
    expected_entropy: FloatArray
    samples: int

    @property
    def examples(self) -> int:
        """The number N of examples."""
        return len(self.log_present)

    @property
    def probability(self) -> FloatArray:
        """The (N, L) mean probabilities p̄ that a label applies."""
        return np.asarray(np.exp(self.log_present))

    @property
    def predicted(self) -> npt.NDArray[np.bool_]:
        """The (N, L) labels that are more probable than not."""
        return np.asarray(self.log_present > self.log_absent)

    @property
    def uncertainty(self) -> Mapping[str, FloatArray]:
        """The (N,) entropies, in [0, 1]: the predictive one, and its two parts."""
        whole = bernoulli_entropy(self.log_present, self.log_absent).mean(axis=1)
        aleatoric = self.expected_entropy
        epistemic = np.maximum(whole - aleatoric, 0.0)
        return {"aleatoric": aleatoric, "epistemic": epistemic, "predictive-entropy": whole}

    def values(self, answers: Answers) -> Mapping[str, tuple[FloatArray, bool]]:
        """Return whether all labels are right, and Σ_l −log p̄(y_l) in nats."""
        right = (self.predicted == (answers > 0)).all(axis=1)
        likelihood = np.where(answers > 0, self.log_present, self.log_absent).sum(axis=1)
        return {
            "accuracy": (right.astype(np.float64), True),
            "negative-log-likelihood": (np.asarray(-likelihood), False),
        }

    def metrics(self, answers: Answers) -> dict[str, float]:
        """Return subset accuracy, likelihood, calibration error, Hamming loss, F1s and precision.

        The mean average precision leaves out labels that apply to no example.
        """
        from sklearn.metrics import average_precision_score, f1_score, hamming_loss

        true, predicted = answers > 0, self.predicted
        means = {name: float(values.mean()) for name, (values, _) in self.values(answers).items()}
        known = true.any(axis=0)
        precision = (
            average_precision_score(true[:, known], self.probability[:, known])
            if known.any()
            else math.nan
        )
        return {
            **means,
            "expected-calibration-error": self._calibration_error(true),
            "hamming-loss": float(hamming_loss(true, predicted)),
            "macro-f1": float(f1_score(true, predicted, average="macro", zero_division=0)),
            "micro-f1": float(f1_score(true, predicted, average="micro", zero_division=0)),
            **({} if math.isnan(precision) else {"mean-average-precision": float(precision)}),
        }

    def _calibration_error(self, true: npt.NDArray[np.bool_]) -> float:
        """Return the expected calibration error of all N·L decisions."""
        confidence = np.exp(np.maximum(self.log_present, self.log_absent)).ravel()
        right = (self.predicted == true).ravel()
        bins = np.clip((confidence * BINS).astype(int), 0, BINS - 1)
        gaps = np.bincount(bins, weights=right - confidence, minlength=BINS)
        return float(np.abs(gaps).sum() / confidence.size)

    def take(self, positions: npt.NDArray[np.int64]) -> LabelPredictions:
        """Return the predictions for the examples at some positions."""
        return LabelPredictions(
            self.log_present[positions],
            self.log_absent[positions],
            self.expected_entropy[positions],
            self.samples,
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all as arrays by name."""
        named = {"probability": self.probability, "predicted": self.predicted}
        return {**named, "samples": np.array(self.samples), **self.uncertainty}


class LabelStatistics:
    """Sums over the samples of a network's predictions; the memory does not grow with M."""

    def __init__(self) -> None:
        self._samples = 0
        self._present = self._absent = self._entropy = np.zeros(0)

    def add_logits(self, outputs: npt.ArrayLike) -> None:
        """Add a sample's logits (N, L) of labels that apply.

        Raises:
            NotFiniteError: They are not finite.
        """
        given = finite_logits(outputs)
        present, absent = -np.logaddexp(0.0, -given), -np.logaddexp(0.0, given)
        entropy = bernoulli_entropy(present, absent).mean(axis=1)
        if not self._samples:
            self._present, self._absent, self._entropy = present, absent, entropy
        else:
            self._present = np.logaddexp(self._present, present)
            self._absent = np.logaddexp(self._absent, absent)
            self._entropy = self._entropy + entropy
        self._samples += 1

    def result(self) -> LabelPredictions:
        """Return the predictions of all samples that were added."""
        log = math.log(self._samples)
        return LabelPredictions(
            self._present - log,
            self._absent - log,
            self._entropy / self._samples,
            self._samples,
        )
