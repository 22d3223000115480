"""Kullback-Leibler divergences between diagonal Gaussians, one pair or all pairs of K.

    KL[q ‖ p] = ½ Σ_d ( σ_q²/σ_p² − 1 − log(σ_q²/σ_p²) + (μ_q − μ_p)²/σ_p² )

Source: Kullback and Leibler (1951), for two normal distributions.

Everything is summed in float64 over blocks of parameters, whatever type the vectors have. Each
divergence has a *resolution*: below it, rounding alone may have made the value, and it cannot be
told from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.posteriors.posterior import Vector

Array = npt.NDArray[np.float64]

BLOCK = 16384
"""Parameters taken at a time: a block of float64 fills 128 KiB, so a few stay in cache."""

ENTRIES, LEAST = 65536, 1024
"""For all pairs: parameters times vectors taken at a time, for the same reason; and the least
number of parameters, for the (K, K) products of a block must be worth their additions."""

ROUNDING = 8.0 * float(np.finfo(np.float64).eps)
"""The resolution of a blocked float64 sum, relative to the magnitude of its terms: the error
measured over a million parameters is below two machine epsilons."""

LEAST_RESOLVED = 1000.0
"""Resolutions that a pair's divergence must have to be taken from the products of all pairs: with
fewer, one vector far away may have cost the others their digits."""


class Divergence(NamedTuple):
    """A divergence and the value below which it cannot be told from 0."""

    value: float
    resolution: float


def divergence(q_mean: Vector, q_var: Vector, p_mean: Vector, p_var: Vector) -> Divergence:
    """Return KL[q ‖ p] of two diagonal Gaussians, vectors (D,), and its resolution."""
    value = magnitude = 0.0
    for block in _blocks([q_mean, q_var, p_mean, p_var], BLOCK):
        variance = p_var[block].astype(np.float64)
        ratio = q_var[block].astype(np.float64) / variance
        shift = q_mean[block].astype(np.float64) - p_mean[block]
        # (r − 1) first: it is exact near r = 1, where log r nearly cancels it.
        terms = ratio - 1.0 - np.log(ratio) + shift * shift / variance
        half = 0.5 * float(terms.sum())
        value += half
        magnitude += float(terms.size) + half
    return Divergence(max(value, 0.0), ROUNDING * magnitude)


def pairwise_divergences(
    means: Sequence[Vector], variances: Sequence[Vector]
) -> tuple[Array, Array]:
    """Return KL[q_k ‖ q_j] of all pairs at row k and column j, and their resolutions.

    With centred means, (μ_k − μ_j)²/σ_j² expands into three terms, and each of them is a product of
    a (K, D) and a (D, K) matrix. They are summed over blocks of D, narrower for more vectors.

    Pairs that this does not tell from 0 by a factor of ``LEAST_RESOLVED`` are computed one by one
    from their differences.
    """
    if len(means) != len(variances):
        raise ValueError(f"got {len(means)} means and {len(variances)} variances")
    count = len(means)
    doubled, magnitude = np.zeros((count, count)), np.zeros((count, count))
    width = min(BLOCK, max(LEAST, ENTRIES // max(count, 1)))
    for block in _blocks([*means, *variances], width):
        mean = np.stack([vector[block] for vector in means]).astype(np.float64)
        variance = np.stack([vector[block] for vector in variances]).astype(np.float64)
        mean -= mean.mean(axis=0)  # a common offset only costs digits
        precision, log_variance = 1.0 / variance, np.log(variance)
        own = (variance + mean * mean) @ precision.T
        cross = mean @ (mean * precision).T
        other = cross.diagonal()
        size, log_sum = float(mean.shape[1]), log_variance.sum(axis=1)
        log_magnitude = np.abs(log_variance).sum(axis=1)
        doubled += own - 2.0 * cross + other - size + log_sum - log_sum[:, None]
        sizes = own + np.abs(2.0 * cross) + other + size
        magnitude += sizes + log_magnitude + log_magnitude[:, None]
    values = np.maximum(0.5 * doubled, 0.0)
    np.fill_diagonal(values, 0.0)
    resolutions = 0.5 * ROUNDING * magnitude
    for k, j in np.argwhere(values <= LEAST_RESOLVED * resolutions):
        if k != j:
            pair = divergence(means[k], variances[k], means[j], variances[j])
            values[k, j], resolutions[k, j] = pair
    return values, resolutions


def _blocks(vectors: Sequence[Vector], width: int) -> Iterator[slice]:
    shapes = {vector.shape for vector in vectors}
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise ValueError(f"expected vectors of one size; got shapes {sorted(shapes)}")
    size = vectors[0].size if vectors else 0
    return (slice(start, start + width) for start in range(0, size, width))
