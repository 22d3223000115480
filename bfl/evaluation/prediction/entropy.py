"""Shannon entropy of the rows of a probability table, in one unit for all that is made of it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def normalized_entropy(probability: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return −Σ_c p_c log p_c / log C of each row, with 0 log 0 = 0.

    Args:
        probability: (N, C) probabilities in [0, 1].

    Returns:
        (N,) entropies as shares of the largest possible, in [0, 1]: 1 is log C nats.

    Source: Fischer et al. (2024), Eq. 8, after Park and Simoff (2015).

    Example:
        >>> normalized_entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).tolist()
        [0.0, 1.0]
    """
    # A probability of 0 is replaced by 1, whose term p log p is 0 as well.
    logarithm = np.log(np.where(probability > 0.0, probability, 1.0))
    # Adding 0 turns the -0.0 of a certain row into 0.0.
    entropy = -(probability * logarithm).sum(axis=1) + 0.0
    # The uniform prediction's entropy may round to the next number above log C.
    return np.asarray(np.minimum(entropy / math.log(probability.shape[1]), 1.0))
