"""Distance of an image's features from those of the clients' training data."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Any, Literal

import numpy as np
from pydantic import Field

from bfl.closing.base import (
    DEVIATION,
    FEATURE_BOUND,
    LONGEST,
    Array,
    Closing,
    Examples,
    Known,
    Shape,
    Sums,
    closings,
)
from bfl.closing.curvature import ROUNDED, WHOLE, packed, unpacked

DENSITY, MAHALANOBIS, RELATIVE = "feature-density", "mahalanobis", "relative-mahalanobis"
"""The names of the scores, each higher the further an image is from the training data."""

SCORES = (DENSITY, MAHALANOBIS, RELATIVE)

SHARES, MEANS, FACTORS = "density-shares", "density-means", "density-factors"
TIED, ALL_MEAN, ALL = "density-tied", "density-mean", "density-all"
PARTS = (MEANS, FACTORS, TIED, ALL_MEAN, ALL)

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

    With ``density-features`` "stages", φ also has the means over pixels of what each convolution
    takes that widens the network, if one does, and covariances are 0 between stages. These sums
    begin when the closings before have finished, so that no message has more than one closing's.

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

    density_features: Literal["last", "stages"] = Field(
        "stages",
        description="what the density of features sees: what the last layer takes, or also what "
        "the convolutions take that widen the network, if any do",
    )

    @property
    def waits(self) -> bool:
        """True with stages: it begins when all closings before it have finished."""
        return self.sees_stages

    @property
    def sees_stages(self) -> bool:
        """True if it takes features of the stages before the last layer as well."""
        return self.density_features == "stages"

    def shapes(self, features: int, classes: int) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the counts and moments by class."""
        triangle = features * (features + 1) // 2
        return {
            "counts": (classes,),
            "first": (classes, features),
            "second": (classes, triangle),
        }

    def shapes_of_stages(self, widths: Sequence[int], classes: int) -> Mapping[str, Shape]:
        """Return the shapes of the moments by class of each stage."""
        found: dict[str, Shape] = {}
        for stage, width in enumerate(widths if self.sees_stages else (), start=1):
            found[f"first.{stage}"] = (classes, width)
            found[f"second.{stage}"] = (classes, width * (width + 1) // 2)
        return found

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return n_c, Σ φ and Σ φφᵀ of each class c; zeros of those with too few examples."""
        classes = examples.classes
        counts = np.bincount(examples.labels, minlength=classes).astype(np.float64)
        # A count that decides is a count that is told: noise hides each class as it is.
        if not examples.noised:
            counts[counts < self.density_least_count] = 0.0
        sums = {"counts": counts}
        stages = examples.stages if self.sees_stages else ()
        for stage, phi in enumerate([examples.features[:, :-1], *stages]):
            width = phi.shape[1]
            first, second = (
                np.zeros((classes, width)),
                np.zeros((classes, width * (width + 1) // 2)),
            )
            for label in np.flatnonzero(counts):
                own = phi[examples.labels == label]
                first[label], second[label] = own.sum(axis=0), packed(own.T @ own)
            sums |= {f"first{_of(stage)}": first, f"second{_of(stage)}": second}
        return sums

    def lengths(self, longest: float, classes: int) -> Mapping[str, float]:
        """Return those of a count, of φ and of φφᵀ, as each example has one class."""
        return {"counts": 1.0, "first": longest, "second": longest**2}

    def implausible(
        self,
        sums: Sums,
        examples: int,
        *,
        noised: bool = False,
        beside: Mapping[str, Sums] | None = None,
    ) -> str | None:
        """Return what of the counts or moments so many examples cannot have."""
        counts = sums["counts"]
        if noised:
            return None
        if (np.abs(counts - np.rint(counts)) > WHOLE).any() or counts.min() < -WHOLE:
            return "a class with a share of an example"
        if counts.sum() > examples + WHOLE:
            return f"they are of {counts.sum():g}"
        for first, second in _moments(sums):
            matrices = np.stack([unpacked(each) for each in second])
            squares = np.diagonal(matrices, axis1=1, axis2=2)
            longest = FEATURE_BOUND**2 * counts * (1.0 + ROUNDED) + ROUNDED * examples
            if (squares.sum(axis=1) > longest).any():
                return "second moments of features that are too long"
            # Σ (φ, 1)(φ, 1)ᵀ has no eigenvalue below 0, and so neither has the covariance.
            bordered = np.zeros((len(counts), first.shape[1] + 1, first.shape[1] + 1))
            bordered[:, :-1, :-1] = matrices
            bordered[:, -1, :-1] = bordered[:, :-1, -1] = first
            bordered[:, -1, -1] = counts
            rounding = ROUNDED * (examples + np.abs(matrices).max(axis=(1, 2)))
            if (np.linalg.eigvalsh(bordered)[:, 0] < -rounding).any():
                return "moments that no features have"
        return None

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the classes' shares, means and covariances, ready to score with."""
        counts = np.asarray(sums["counts"], np.float64)
        noise = float(known.get(DEVIATION, 0.0))
        there = counts >= max(self.density_least_count, 3.0 * noise)
        known = {**known, CLASSES: np.array(float(there.sum()))}
        if not there.any():
            return known
        longest = float(known.get(LONGEST, 0.0))
        found: dict[str, Array] = {SHARES: counts[there] / counts[there].sum()}
        for stage, (first, second) in enumerate(_moments(sums)):
            own = self._gaussians(counts[there], first[there], second[there], noise, longest)
            found |= {f"{name}{_of(stage)}": value for name, value in own.items()}
        return {**known, **found}

    def _gaussians(
        self, counts: Array, first: Array, second: Array, noise: float, longest: float
    ) -> dict[str, Array]:
        """Return means and covariances of the features of one stage."""
        means = first / counts[:, None]
        moments = np.stack([unpacked(each) for each in second])
        inside = moments - counts[:, None, None] * _outer(means)
        tied = inside.sum(axis=0) / counts.sum()
        width = len(tied)
        ridge = self.density_shrinkage * max(np.trace(tied) / width, np.finfo(np.float32).tiny)
        ridge = ridge * np.eye(width)
        # What noise makes of an eigenvalue of Σ φφᵀ.
        blur = 2.0 * noise * longest**2 * np.sqrt(width) * np.eye(width)
        mean = (counts[:, None] * means).sum(axis=0) / counts.sum()
        around = moments.sum(axis=0) / counts.sum() - _outer(mean)
        return {
            MEANS: means,
            FACTORS: _whitening((inside + blur) / counts[:, None, None] + ridge),
            TIED: _whitening(tied + np.sqrt(len(counts)) * blur / counts.sum() + ridge),
            ALL_MEAN: mean,
            ALL: _whitening(around + np.sqrt(len(counts)) * blur / counts.sum() + ridge),
        }


def scores(known: Known, features: Sequence[Array]) -> dict[str, Array]:
    """Return the scores (N,) by name, of the last layer's features (N, F) and of stages before.

    There are none where there is no density.
    """
    if SHARES not in known:
        return {}
    logs: list[Any] = [np.log(share) for share in known[SHARES]]
    distances: list[Any] = [0.0 for _ in logs]
    of_all: Any = 0.0
    for stage, phi in enumerate(features):
        own = {name: known[f"{name}{_of(stage)}"] for name in PARTS}
        for label, (mean, factor) in enumerate(zip(own[MEANS], own[FACTORS], strict=True)):
            square = (((phi - mean) @ factor) ** 2).sum(axis=1)
            log_scale = np.linalg.slogdet(factor)[1] - phi.shape[1] / 2 * np.log(2 * np.pi)
            logs[label] = logs[label] + log_scale - square / 2
            distances[label] = distances[label] + (((phi - mean) @ own[TIED]) ** 2).sum(axis=1)
        of_all = of_all + (((phi - own[ALL_MEAN]) @ own[ALL]) ** 2).sum(axis=1)
    nearest = np.min(distances, axis=0)
    return {
        DENSITY: -np.logaddexp.reduce(logs, axis=0),
        MAHALANOBIS: nearest,
        RELATIVE: nearest - of_all,
    }


def means_of_stages(arrays: Container[str]) -> list[str]:
    """Return the names of the means that were found: the last layer's, and those of stages."""
    found = takewhile(arrays.__contains__, (f"{MEANS}{_of(stage)}" for stage in count()))
    return list(found)


def shapes_found(classes: int, widths: Sequence[int]) -> dict[str, Shape]:
    """Return the shapes of what is found besides shares, of classes and widths of stages."""
    shapes: dict[str, Shape] = {}
    for stage, width in enumerate(widths):
        own = ((classes, width), (classes, width, width), (width, width), (width,), (width, width))
        shapes |= {f"{name}{_of(stage)}": shape for name, shape in zip(PARTS, own, strict=True)}
    return shapes


def _of(stage: int) -> str:
    """Return what names of a stage's arrays end with; 0 is that of the last layer."""
    return f".{stage}" if stage else ""


def _moments(sums: Sums) -> Iterator[tuple[Array, Array]]:
    """Yield Σ φ and Σ φφᵀ by class of each stage, the last layer's first."""
    for name in sums:
        if name.startswith("first"):
            yield sums[name], sums[name.replace("first", "second")]


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
