"""Distance of an image's features from those of the clients' training data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from bfl.closing.base import (
    DEVIATION,
    LONGEST,
    Array,
    Closing,
    Examples,
    Known,
    Sums,
    closings,
)
from bfl.closing.curvature import ROUNDED, WHOLE, packed, unpacked

DENSITY, MAHALANOBIS, RELATIVE = "feature-density", "mahalanobis", "relative-mahalanobis"
"""The names of the scores, each higher the further an image is from the training data."""

SCORES = (DENSITY, MAHALANOBIS, RELATIVE)

SHARES, MEANS, FACTORS = "density-shares", "density-means", "density-factors"
TIED, ALL_MEAN, ALL = "density-tied", "density-mean", "density-all"
PARTS = (SHARES, MEANS, FACTORS, TIED, ALL_MEAN, ALL)

CLASSES = "density-classes"
"""The number of classes of which some client has had enough examples; without any no score."""


@closings.register("feature-density")
class FeatureDensity(Closing):
    """A Gaussian density of features by class over all clients' data, which foreign images lack.

    Each client sends n_c, Σ φ and Σ φφᵀ of each class c. The server has π_c = n_c/n, the means μ_c
    and covariances Σ_c + κ tr(Σ)/F · I with Σ the tied one, and scores an image by

        u(x) = −log Σ_c π_c N(φ; μ_c, Σ_c)   (``feature-density``, in nats),

    by the smallest squared Mahalanobis distance to a class under the tied covariance
    (``mahalanobis``), and by that minus the distance to the mean of all under the covariance of all
    (``relative-mahalanobis``). Predictions stay as they are.

    A client leaves out a class of which it has fewer than ``density-least-count`` examples. Under
    privacy's noise it leaves out none, and the server those whose count is below three standard
    deviations of its noise. Covariances get what noise makes of their eigenvalues.

    Reference: Mukhoti et al. (2023), "Deep deterministic uncertainty"; Lee et al. (2018) for tied
    covariances; Ren et al. (2021), "A simple fix to Mahalanobis distance".
    """

    density_shrinkage: float = Field(
        1e-3, gt=0.0, le=1.0, description="κ: how much of the mean variance covariances get"
    )
    density_least_count: int = Field(
        5, ge=1, description="fewest examples of a class of which a client sends sums"
    )

    def shapes(self, features: int, classes: int) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the counts and moments by class."""
        triangle = features * (features + 1) // 2
        return {
            "counts": (classes,),
            "first": (classes, features),
            "second": (classes, triangle),
        }

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return n_c, Σ φ and Σ φφᵀ of each class c; zeros of those with too few examples."""
        phi, classes = examples.features[:, :-1], examples.classes
        width = phi.shape[1]
        sums = {
            "counts": np.zeros(classes),
            "first": np.zeros((classes, width)),
            "second": np.zeros((classes, width * (width + 1) // 2)),
        }
        for label in range(classes):
            own = phi[examples.labels == label]
            # A count that decides is a count that is told: noise hides each class as it is.
            if examples.noised or len(own) >= self.density_least_count:
                found = (float(len(own)), own.sum(axis=0), packed(own.T @ own))
                for name, value in zip(sums, found, strict=True):
                    sums[name][label] = value
        return sums

    def lengths(self, longest: float, classes: int) -> Mapping[str, float]:
        """Return those of a count, of φ and of φφᵀ, as each example has one class."""
        return {"counts": 1.0, "first": longest, "second": longest**2}

    def implausible(self, sums: Sums, examples: int, *, noised: bool = False) -> str | None:
        """Return what of the counts or moments so many examples cannot have."""
        counts = sums["counts"]
        if noised:
            return None
        if (np.abs(counts - np.rint(counts)) > WHOLE).any() or counts.min() < -WHOLE:
            return "a class with a share of an example"
        if counts.sum() > examples + WHOLE:
            return f"they are of {counts.sum():g}"
        squares = np.stack([np.diag(unpacked(each)) for each in sums["second"]])
        # Cauchy and Schwarz, of Σ φ by feature and class.
        most = np.maximum(counts, 0.0)[:, None] * np.maximum(squares, 0.0)
        rounding = ROUNDED * (np.abs(sums["first"]) + examples)
        if (np.abs(sums["first"]) > np.sqrt(most) * (1.0 + ROUNDED) + rounding).any():
            return "means beyond the root of second moments"
        return None

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the classes' shares, means and covariances, ready to score with."""
        counts = np.asarray(sums["counts"], np.float64)
        noise = float(known.get(DEVIATION, 0.0))
        there = counts >= max(self.density_least_count, 3.0 * noise)
        known = {**known, CLASSES: np.array(float(there.sum()))}
        if not there.any():
            return known
        counts = counts[there]
        means = sums["first"][there] / counts[:, None]
        moments = np.stack([unpacked(each) for each in sums["second"][there]])
        inside = moments - counts[:, None, None] * _outer(means)
        tied = inside.sum(axis=0) / counts.sum()
        width = len(tied)
        ridge = self.density_shrinkage * max(np.trace(tied) / width, np.finfo(np.float32).tiny)
        ridge = ridge * np.eye(width)
        # What noise makes of an eigenvalue of Σ φφᵀ.
        blur = 2.0 * noise * float(known.get(LONGEST, 0.0)) ** 2 * np.sqrt(width) * np.eye(width)
        mean = (counts[:, None] * means).sum(axis=0) / counts.sum()
        around = moments.sum(axis=0) / counts.sum() - _outer(mean)
        return {
            **known,
            SHARES: counts / counts.sum(),
            MEANS: means,
            FACTORS: _whitening((inside + blur) / counts[:, None, None] + ridge),
            TIED: _whitening(tied + np.sqrt(len(counts)) * blur / counts.sum() + ridge),
            ALL_MEAN: mean,
            ALL: _whitening(around + np.sqrt(len(counts)) * blur / counts.sum() + ridge),
        }


def scores(known: Known, features: Array) -> dict[str, Array]:
    """Return the scores (N,) of features (N, F), by name; none where there is no density."""
    if SHARES not in known:
        return {}
    shares, means, factors = known[SHARES], known[MEANS], known[FACTORS]
    width = features.shape[1]
    logs = []
    for share, mean, factor in zip(shares, means, factors, strict=True):
        square = (((features - mean) @ factor) ** 2).sum(axis=1)
        log_scale = np.linalg.slogdet(factor)[1] - width / 2 * np.log(2 * np.pi)
        logs.append(np.log(share) + log_scale - square / 2)
    nearest = np.min(
        [(((features - mean) @ known[TIED]) ** 2).sum(axis=1) for mean in means], axis=0
    )
    of_all = (((features - known[ALL_MEAN]) @ known[ALL]) ** 2).sum(axis=1)
    return {
        DENSITY: -np.logaddexp.reduce(logs, axis=0),
        MAHALANOBIS: nearest,
        RELATIVE: nearest - of_all,
    }


def _outer(vectors: Array) -> Array:
    """Return v vᵀ (..., F, F) of vectors (..., F)."""
    return np.asarray(vectors[..., :, None] * vectors[..., None, :])


def _whitening(covariance: Array) -> Array:
    """Return factors B (..., F, F) with B Bᵀ the inverse of a covariance.

    What float32 sums have rounded below 0 counts as 0: the ridge that was added keeps it positive.
    Sums of a client that lies may leave no positive value at all, and the factors stay finite.
    """
    values, vectors = np.linalg.eigh(covariance)
    single = np.finfo(np.float32)
    floor = np.maximum(values.max(axis=-1, keepdims=True) * single.eps, single.tiny)
    return np.asarray(vectors / np.sqrt(np.maximum(values, floor))[..., None, :])
