"""A classifier's predictions for N examples over M samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


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
