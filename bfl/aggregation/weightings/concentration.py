"""Concentration of the weights: the effective number of clients and the largest share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def describe_weights(weights: Sequence[float] | npt.NDArray[np.floating]) -> dict[str, float]:
    """Return what each round's record says of its weights ω_k.

    Args:
        weights: (K,) weights in any scale, not negative, one at least positive.

    Returns:
        ``effective-clients``, 1/Σ ω_k² with Σ ω_k = 1: K for equal weights, 1 where one client has
        them all. ``largest-weight``: the largest ω_k.

    Source:
        Kish (1965), "Survey sampling": the effective sample size of unequal weights.
    """
    shares = np.asarray(weights, np.float64)
    shares = shares / shares.max()
    shares = shares / shares.sum()
    return {
        "effective-clients": float(1.0 / np.sum(shares**2)),
        "largest-weight": float(shares.max()),
    }
