"""A classifier's predictions for N examples: their statistics over M samples, in a stream."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bfl.errors import NotFiniteError


def normalized_entropy(probability: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return −Σ_c p_c log p_c / log C of rows (N, C), with 0 log 0 = 0: shares (N,) of log C nats.

    Source: Fischer et al. (2024), Eq. 8, after Park and Simoff (2015).
    """
    # A probability of 0 is replaced by 1, whose term p log p is 0 as well.
    logarithm = np.log(np.where(probability > 0.0, probability, 1.0))
    # Adding 0 turns the -0.0 of a certain row into 0.0.
    entropy = -(probability * logarithm).sum(axis=1) + 0.0
    # The uniform prediction's entropy may round to the next number above log C.
    return np.asarray(np.minimum(entropy / math.log(probability.shape[1]), 1.0))


FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Predictions:
    """Predictions for N examples from M samples p̂_m of the class probabilities.

    Source: Fischer et al. (2024), section 2.3, Eqs. 7 and 9.

    Attributes:
        mean_probability: (N, C) mean probabilities p̄ = mean_m p̂_m (Eq. 7).
        log_mean_probability: (N, C) log p̄ in nats, which tells what p̄ cannot: where p̄ is 0 by
            underflow, it is finite.
        expected_entropy: (N,) mean normalised entropy of the samples, mean_m H̃[p̂_m], in [0, 1]: a
            share of log C, as in Eq. 8.
        aleatoric: (N,) trace of the aleatoric matrix of Eq. 9, 1 − mean_m Σ_c p̂².
        epistemic: (N,) trace of the epistemic matrix of Eq. 9, mean_m Σ_c (p̂ − p̄)².
        samples: The number M of samples.
        scores: (N,) of each, by name: what else is known of how far an example is from the
            training data, higher where it is further.
        sets: (N, C) of each, by name: which classes are in the prediction set of an example.
        familiarity: (N,) the share of examples that clients have held back which are stranger, in
            [0, 1]; None where a closing round has not found it.
    """

    mean_probability: FloatArray
    log_mean_probability: FloatArray
    expected_entropy: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray
    samples: int
    scores: Mapping[str, FloatArray] = field(default_factory=dict)
    sets: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    familiarity: FloatArray | None = None

    def take(self, positions: IntArray) -> Predictions:
        """Return the predictions for the examples at some positions."""
        return Predictions(
            self.mean_probability[positions],
            self.log_mean_probability[positions],
            self.expected_entropy[positions],
            self.aleatoric[positions],
            self.epistemic[positions],
            self.samples,
            scores={name: score[positions] for name, score in self.scores.items()},
            sets={name: held[positions] for name, held in self.sets.items()},
            familiarity=None if self.familiarity is None else self.familiarity[positions],
        )

    @property
    def examples(self) -> int:
        """The number N of examples."""
        return int(self.mean_probability.shape[0])

    @property
    def classes(self) -> int:
        """The number C of classes."""
        return int(self.mean_probability.shape[1])

    @property
    def predicted(self) -> IntArray:
        """The (N,) classes with the highest mean probability, the lowest of them when tied."""
        return np.asarray(self.mean_probability.argmax(axis=1), dtype=np.int64)

    @property
    def confidence(self) -> FloatArray:
        """The (N,) mean probabilities of the predicted classes, in [1/C, 1]."""
        return np.asarray(self.mean_probability.max(axis=1))


ENERGY, MAX_LOGIT = "energy", "max-logit"
"""Names of scores: −log Σ_c exp z_c and −max_c z_c of logits z, on average over the samples.

Source: Liu et al. (2020), "Energy-based out-of-distribution detection", Eq. 4 with T = 1; Hendrycks
et al. (2022), "Scaling out-of-distribution detection for real-world settings".
"""

SMALLEST = float(np.nextafter(0.0, 1.0))

OFF_BY_ROUNDING = 1e-3
"""The most by which the sum of probabilities may differ from 1, as those in float16 do."""


def finite_logits(outputs: npt.ArrayLike) -> FloatArray:
    """Return a network's outputs in float64, or raise a NotFiniteError."""
    given = np.asarray(outputs, np.float64)
    if bad := int(given.size - np.count_nonzero(np.isfinite(given))):
        raise NotFiniteError(bad, given.size)
    return given


def _check_shape(what: str, given: FloatArray, shape: tuple[int, ...] | None) -> None:
    if given.ndim != 2 or given.shape[0] < 1 or given.shape[1] < 2:
        raise ValueError(
            f"{what} have shape {given.shape}; expected (examples, classes) with at least one "
            "example and two classes"
        )
    if shape is not None and given.shape != shape:
        raise ValueError(f"{what} have shape {given.shape}; expected {shape} as before")


def log_softmax(logits: npt.ArrayLike, shape: tuple[int, ...] | None = None) -> FloatArray:
    """Return log(exp(z_c) / Σ_c exp(z_c)) of logits (N, C), in nats: finite for all finite ones."""
    _check_shape("logits", np.asarray(logits), shape)
    given = finite_logits(logits)
    shifted = given - given.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _log_of_mean(first: FloatArray, second: FloatArray, share: float) -> FloatArray:
    """Return log((1 − s) eᵃ + s eᵇ) for shares 0 < s < 1; exactly a where a and b are the same.

    As max(a, b) + log(1 + w (exp(−|a − b|) − 1)), w being the share of the smaller one, which
    neither overflows nor, for a = b, rounds.
    """
    largest = np.maximum(first, second)
    weight = np.where(first < second, 1.0 - share, share)
    return np.asarray(largest + np.log1p(weight * np.expm1(np.minimum(first, second) - largest)))


class PredictionStatistics:
    """Running means over M samples of (N, C) class probabilities, in float64.

    Held are p̄ and log p̄ (N, C) and three vectors (N,), so memory does not grow with M. All are
    running means in Welford's form, mean += (value − mean) / m, rather than plain sums: identical
    samples then leave every mean exactly as it is, hence an epistemic uncertainty and a mutual
    information of exactly 0, and Σ_c (p̂ − p̄)² never cancels. log p̄ is the logarithm of the mean of
    exp(log p̂), summed without leaving the logarithm, so that no likelihood underflows.

    The aleatoric trace 1 − Σ_c p̂² is summed as Σ_c p̂ (1 − p̂), which is the same number for rows
    that sum to 1, never negative, and accurate where the prediction is nearly certain.

    Example:
        >>> statistics = PredictionStatistics()
        >>> statistics.add([[0.8, 0.2]])
        >>> statistics.add([[0.6, 0.4]])
        >>> predictions = statistics.result()
        >>> predictions.mean_probability.round(4).tolist(), predictions.epistemic.round(4).tolist()
        ([[0.7, 0.3]], [0.02])

    Reference:
        Welford (1962), "Note on a method for calculating corrected sums of squares and products".
        What is summed: Fischer et al. (2024), Eqs. 7 and 9.
    """

    def __init__(self) -> None:
        self._samples = 0
        self._mean = np.zeros((0, 0))
        self._log_mean = np.zeros((0, 0))
        self._entropy = np.zeros(0)
        self._aleatoric = np.zeros(0)
        self._squares = np.zeros(0)  # sum over the samples of sum_c (p - mean)^2
        self._scores: dict[str, FloatArray] = {}

    @classmethod
    def of(cls, samples: Iterable[npt.ArrayLike]) -> PredictionStatistics:
        """Return the statistics of samples (N, C), taken one after the other."""
        statistics = cls()
        for probabilities in samples:
            statistics.add(probabilities)
        return statistics

    @property
    def samples(self) -> int:
        """The number M of samples added so far."""
        return self._samples

    def add(self, probabilities: npt.ArrayLike) -> None:
        """Take in one sample, of which only the probabilities (N, C) are known.

        The logarithm of a probability of 0 is taken to be that of the smallest number above 0 in
        float64, −744.44: log p̄ stays finite.
        """
        sample = np.array(probabilities, dtype=np.float64)  # a copy: it may change later
        _check_shape("probabilities", sample, self._mean.shape if self._samples else None)
        right = (sample >= 0.0).all(axis=1) & (np.abs(sample.sum(axis=1) - 1.0) <= OFF_BY_ROUNDING)
        if wrong := int(np.count_nonzero(~right)):
            raise ValueError(
                f"{wrong} of {len(sample)} rows are no probabilities; expected numbers from 0 on "
                "that sum to 1"
            )
        self._add(sample, np.log(np.maximum(sample, SMALLEST)))

    def add_logits(self, logits: npt.ArrayLike) -> None:
        """Take in one sample by its logits (N, C), whose likelihoods have no least value."""
        log_probability = log_softmax(logits, self._mean.shape if self._samples else None)
        self._add(np.exp(log_probability), log_probability)
        largest = np.asarray(logits, np.float64).max(axis=1)
        found = {ENERGY: log_probability.max(axis=1) - largest, MAX_LOGIT: -largest}
        for name, score in found.items():
            mean = self._scores.get(name, 0.0)
            self._scores[name] = mean + (score - mean) / self._samples

    def result(self) -> Predictions:
        """Return the predictions; later samples do not change them."""
        if not self._samples:
            raise ValueError("no sample was added; predictions need at least one")
        return Predictions(
            mean_probability=self._mean.copy(),
            log_mean_probability=self._log_mean.copy(),
            expected_entropy=self._entropy.copy(),
            aleatoric=self._aleatoric.copy(),
            epistemic=self._squares / self._samples,
            samples=self._samples,
            scores=dict(self._scores),
        )

    def _add(self, sample: FloatArray, log_sample: FloatArray) -> None:
        entropy = normalized_entropy(sample)
        aleatoric = (sample * (1.0 - sample)).sum(axis=1)
        self._samples += 1
        if self._samples == 1:
            self._mean, self._log_mean = sample.copy(), log_sample.copy()
            self._entropy, self._aleatoric = entropy, aleatoric
            self._squares = np.zeros(sample.shape[0])
            return
        share = 1 / self._samples
        difference = sample - self._mean
        # Every term is at least 0, so the sum of squares cannot fall below 0 by rounding.
        self._squares += (difference**2).sum(axis=1) * ((self._samples - 1) * share)
        self._mean += difference * share
        self._log_mean = _log_of_mean(self._log_mean, log_sample, share)
        self._entropy += (entropy - self._entropy) * share
        self._aleatoric += (aleatoric - self._aleatoric) * share
