"""A Bayesian last layer for numbers, and intervals as wide as held-back examples say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from bfl.closing.base import (
    FEATURE_BOUND,
    FROM_HEAD,
    HEAD,
    Array,
    Closing,
    Examples,
    Histogram,
    Known,
    Measurement,
    Shapes,
    Sizes,
    Sums,
    closings,
)
from bfl.closing.bayesian_head import (
    DRAWS,
    PRECISIONS,
    STEPS,
    TEMPERATURE,
    TEMPERATURES,
    VALUES,
    VECTORS,
    HeldBackGains,
    along_eigenvectors,
    newton_step,
)
from bfl.closing.curvature import packed, unpacked
from bfl.data.datasets.encoding import LEAST_NOISE
from bfl.evaluation.regression import INTERVAL, LEVEL, Mixtures, negative_log_likelihoods

NUMBERS = "predicts-numbers"
"""The array that is there where the last layer predicts numbers."""

BINS = 1000
"""Bins of the histogram of z/(1 + z), with z the distance of a target in standard deviations."""

POINTS_OF_NORMAL = ndtri((np.arange(DRAWS) + 0.5) / DRAWS)
POINTS_OF_NORMAL /= POINTS_OF_NORMAL.std()
"""The means of a mixture that stands for a standard normal: of its mean and its variance."""


class MeanCurvature(Measurement):
    """The gradient and the curvature of trained targets' log-likelihood, for the mean's weights."""

    told: ClassVar[tuple[str, ...]] = (HEAD,)

    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shapes of Σ ψ r and the triangle of Σ ψψᵀ."""
        width = sizes.features + 1
        return {"slope": (width,), "scatter": (width * (width + 1) // 2,)}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return the sums; ψ = φ̃/σ and the residual r = (y − μ)/σ count up to a length of 1,000."""
        mean, noise = _outputs(known, examples.features)
        scaled = examples.features / np.sqrt(noise)[:, None]
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        scaled *= FEATURE_BOUND / np.maximum(lengths, FEATURE_BOUND)
        residual = (examples.targets - mean) / np.sqrt(noise)
        slope = scaled.T @ np.clip(residual, -FEATURE_BOUND, FEATURE_BOUND)
        return {"slope": slope, "scatter": packed(scaled.T @ scaled)}

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the curvature's eigenvectors and values, and the gradient along them."""
        found = along_eigenvectors(unpacked(sums["scatter"])[None], sums["slope"])
        return {**known, NUMBERS: np.array(True), **found}


class HeldBackDensities(HeldBackGains):
    """By how much likelier held-back targets are under each candidate than under the points."""

    most_likely: ClassVar[float] = -0.5 * math.log(2 * math.pi * LEAST_NOISE * TEMPERATURES[0] ** 2)

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return the sums over every other target."""
        return super().measure(known, examples.take(slice(0, None, 2)))

    def likelihoods(self, known: Known, examples: Examples) -> Array:
        """Return the log-density of targets under each candidate, (candidates, N)."""
        features = examples.features
        mean, noise = _outputs(known, features)
        along = (features @ known[VECTORS][0]) ** 2
        candidates = []
        for precision in PRECISIONS:
            values = known[VALUES] + precision
            step = features @ newton_step(known, values)[:, 0]
            spread = (along / values).sum(axis=1)
            candidates += [(mean + share * step, spread) for share in STEPS]
        candidates.append((mean, np.zeros_like(mean)))
        found = [
            -negative_log_likelihoods(_mixtures(each, noise, spread, factor), examples.targets)
            for each, spread in candidates
            for factor in TEMPERATURES
        ]
        return np.array(found)


class DistancesOfTargets(Histogram):
    """The histogram of how many predicted deviations held-back targets are from their means."""

    told: ClassVar[tuple[str, ...]] = (HEAD, FROM_HEAD, VECTORS, VALUES, TEMPERATURE)
    compares_draws: ClassVar[bool] = True

    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shape of the histogram."""
        return {"distances": (BINS,)}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return how many examples have a distance in each bin, of those that picked nothing."""
        examples = examples.take(slice(1, None, 2))
        found = predicted(known, examples.features)
        if examples.drawn is not None and not known[FROM_HEAD]:
            found = examples.drawn
        distances = np.abs(examples.targets - found.mean) / found.deviation
        bins = (BINS * distances / (1.0 + distances)).astype(np.int64).clip(max=BINS - 1)
        return {"distances": np.bincount(bins, minlength=BINS).astype(np.float64)}

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the upper edge of the bin of the ⌈(n + 1) 0.9⌉-th; nothing without so many."""
        below = np.cumsum(sums["distances"])
        rank = math.ceil((round(below[-1]) + 1) * LEVEL - 1e-9)
        if below[-1] < rank - 0.5:
            return known
        edge = min(int(np.argmax(below >= rank - 0.5)) + 1.0, BINS - 0.5) / BINS
        return {**known, INTERVAL: np.array(edge / (1.0 - edge))}


@closings.register("gaussian-head")
class GaussianHead(Closing):
    """The last layer's Gaussian posterior where numbers are predicted, and calibrated intervals.

    The network's outputs are a mean μ = wᵀφ̃ and a variance σ². Clients send Σ φ̃φ̃ᵀ/σ² and
    Σ φ̃ (y − μ)/σ² of the examples that they train on: the curvature H and the gradient g of w,
    with σ² as it is. Candidates are N(w + s d, (H + δI)⁻¹) as for ``bayesian-head``; each has 11
    factors of all standard deviations in place of temperatures. The log-density of every other
    held-back target of a client picks one of them, or draws of the whole network. Numbers have the
    deviation 1 here.

    In a third message clients send a histogram of |y − μ|, in predicted standard deviations, of the
    others, so that they are exchangeable with new ones. Its ⌈(n + 1) 0.9⌉-th smallest is half the
    width of the interval of 90 %. With n below nine the interval is that of the prediction.

    Reference: Bishop (2006), "Pattern recognition and machine learning", section 3.3; Lei et al.
    (2018), "Distribution-free predictive inference for regression", section 5.2.
    """

    moves_head: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = False
    tasks: ClassVar[tuple[str, ...]] = ("regression",)

    def measurements(self) -> Sequence[Measurement]:
        """Return the curvature's, and those of held-back examples."""
        return (MeanCurvature(), HeldBackDensities(), DistancesOfTargets())


def predicted(known: Known, features: Array) -> Mixtures:
    """Return the predictions of features (N, F + 1) by the last layer that was found."""
    mean, noise = _outputs(known, features)
    spread = np.zeros_like(mean)
    if VECTORS in known:
        spread = ((features @ known[VECTORS][0]) ** 2 / known[VALUES]).sum(axis=1)
    return _mixtures(mean, noise, spread, float(known.get(TEMPERATURE, 1.0)))


def _outputs(known: Known, features: Array) -> tuple[Array, Array]:
    """Return the means and the variances of the noise (N,) that the last layer predicts."""
    mean, rho = (features @ known[HEAD]).T
    return mean, np.logaddexp(0.0, rho) + LEAST_NOISE


def _mixtures(mean: Array, noise: Array, spread: Array, factor: float) -> Mixtures:
    """Return mixtures of Gaussians whose means vary by a spread, and all deviations by a factor."""
    apart = factor * np.sqrt(spread) * POINTS_OF_NORMAL[:, None]
    means = mean + (apart if spread.any() else apart[:1])
    return Mixtures(means, np.broadcast_to(factor**2 * noise, means.shape))
