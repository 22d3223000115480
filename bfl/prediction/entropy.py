"""Shannon entropy of the rows of a probability table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def entropy(probability: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return −Σ_c p_c log p_c of each row, with 0 log 0 = 0.

    Args:
        probability: (N, C) probabilities in [0, 1].

    Returns:
        (N,) entropies in nats, at least 0.

    Example:
        >>> entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).round(4).tolist()
        [0.0, 0.6931]
    """
    # A probability of 0 is replaced by 1, whose term p log p is 0 as well.
    logarithm = np.log(np.where(probability > 0.0, probability, 1.0))
    # Adding 0 turns the -0.0 of a certain row into 0.0.
    return np.asarray(-(probability * logarithm).sum(axis=1) + 0.0)
