"""Density of an example's features, and its place among those of held-back examples."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from bfl.closing.base import (
    DEVIATION,
    FEATURE_BOUND,
    LONGEST,
    ROUNDED,
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
    count_problem,
)
from bfl.closing.curvature import packed, unpacked

DENSITY = "feature-density"
"""The name of the score, higher the further an example is from the training data."""

SHARES, MEANS, FACTORS = "density-shares", "density-means", "density-factors"

FAMILIARITY = "familiarity-counts"
"""The array with the histogram of held-back examples' scores, in the order of ``EDGES``."""

THRESHOLD, MIXES = "familiarity-threshold", "familiarity-mixing"

MIXED_BELOW = 0.002
"""The familiarity below which probabilities go to the uniform, if no threshold is lower.

Of exchangeable examples that costs at most ∫ −log(a/0.002) da = 0.002 nats on average.
"""

REACH = 20.0
EDGES = np.sinh(np.linspace(-REACH, REACH, 4001))
"""Edges of the bins of scores, in deviations from the mean of what Gaussian features have."""

JOINED = 50
"""Bins that count as one where sums have noise."""

TAIL = 5
"""Held-back examples beyond whose scores there is a tail, which their excesses describe."""


class MomentsByClass(Measurement):
    """Counts and moments of features by class, of trained examples."""

    def __init__(self, shrinkage: float, *, sees_stages: bool) -> None:
        self._shrinkage = shrinkage
        self._sees_stages = sees_stages

    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shapes of the counts and moments by class, of the last layer and of stages."""
        found: dict[str, tuple[int, ...]] = {"counts": (sizes.classes,)}
        stages = sizes.stages if self._sees_stages else ()
        for stage, width in enumerate((sizes.features, *stages)):
            found[f"first{_suffix(stage)}"] = (sizes.classes, width)
            found[f"second{_suffix(stage)}"] = (sizes.classes, width * (width + 1) // 2)
        return found

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return n_c, Σ φ and Σ φφᵀ of each class c."""
        counts = np.bincount(examples.labels, minlength=examples.classes).astype(np.float64)
        sums = {"counts": counts}
        stages = examples.stages if self._sees_stages else ()
        for stage, phi in enumerate([examples.features[:, :-1], *stages]):
            width = phi.shape[1]
            first = np.zeros((len(counts), width))
            second = np.zeros((len(counts), width * (width + 1) // 2))
            for label in np.flatnonzero(counts):
                own = phi[examples.labels == label]
                first[label], second[label] = own.sum(axis=0), packed(own.T @ own)
            sums |= {f"first{_suffix(stage)}": first, f"second{_suffix(stage)}": second}
        return sums

    def lengths(self, longest: float, sizes: Sizes) -> Mapping[str, float]:
        """Return those of a count, of φ and of φφᵀ, as each example has one class."""
        by_kind = {"counts": 1.0, "first": longest, "second": longest**2}
        return {name: by_kind[name.partition(".")[0]] for name in self.shapes(sizes)}

    def find_problem(self, sums: Sums, examples: int, *, noised: bool = False) -> str | None:
        """Return what of the counts or moments so many examples cannot have."""
        counts = sums["counts"]
        if noised:
            return None
        if problem := count_problem(counts, examples):
            return problem
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
        there = counts >= max(0.5, 3.0 * noise)
        if not there.any():
            return known
        longest = float(known.get(LONGEST, 0.0))
        found: dict[str, Array] = {SHARES: counts[there] / counts[there].sum()}
        for stage, (first, second) in enumerate(_moments(sums)):
            own = self._gaussians(counts[there], first[there], second[there], noise, longest)
            found |= {f"{name}{_suffix(stage)}": value for name, value in own.items()}
        return {**known, **found}

    def _gaussians(
        self, counts: Array, first: Array, second: Array, noise: float, longest: float
    ) -> dict[str, Array]:
        """Return means and whitened covariances of the features of one stage.

        A class's covariance is shrunk towards the common one by n_c/(n_c + F).
        """
        means = first / counts[:, None]
        moments = np.stack([unpacked(each) for each in second])
        outer = means[:, :, None] * means[:, None, :]
        scatter = moments - counts[:, None, None] * outer
        common = scatter.sum(axis=0) / counts.sum()
        width = len(common)
        least = max(np.trace(common) / width, np.finfo(np.float32).tiny)
        ridge = self._shrinkage * least * np.eye(width)
        # What noise makes of an eigenvalue of Σ φφᵀ.
        blur = 2.0 * noise * longest**2 * np.sqrt(width) * np.eye(width)
        together = common + np.sqrt(len(counts)) * blur / counts.sum()
        own = (scatter + blur + width * together) / (counts + width)[:, None, None]
        single = np.float32  # as clients get them
        return {
            MEANS: means.astype(single).astype(np.float64),
            FACTORS: _whitening(own + ridge).astype(single).astype(np.float64),
        }


class ScoresOfHeldBack(Histogram):
    """The histogram of the scores of held-back examples."""

    told: ClassVar[tuple[str, ...]] = (SHARES, MEANS, FACTORS)

    def __init__(self, threshold: float, *, mixes: bool) -> None:
        self._threshold = threshold
        self._mixes = mixes

    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shape of the histogram."""
        return {"scores": (len(EDGES) - 1,)}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return how many examples have a score in each bin."""
        counts = np.zeros(len(EDGES) - 1)
        if SHARES in known:
            features = [examples.features[:, :-1], *examples.stages]
            bins = _places(known, density(known, features)).astype(np.int64)
            bins = np.clip(bins, 0, len(counts) - 1)
            if examples.noised:
                bins = bins // JOINED * JOINED
            np.add.at(counts, bins, 1.0)
        return {"scores": counts}

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the histogram, and what is done by it; without examples nothing."""
        counts = np.asarray(sums["scores"], np.float64)
        if DEVIATION in known:
            joined = counts[::JOINED]
            above = np.maximum.accumulate(joined[::-1].cumsum())  # noise makes no share fall
            counts = np.repeat(np.diff(np.maximum(above, 0.0), prepend=0.0)[::-1], JOINED) / JOINED
        if SHARES not in known or counts.sum() < 0.5:
            return known
        return {
            **known,
            FAMILIARITY: counts,
            THRESHOLD: np.array(self._threshold),
            MIXES: np.array(self._mixes),
        }


@closings.register("feature-density")
class FeatureDensity(Closing):
    """A Gaussian density of features by class over all clients' data, which foreign images lack.

    Each client sends n_c, Σ φ and Σ φφᵀ of each class c. The server has π_c = n_c/n, the means μ_c
    and covariances Σ_c, each shrunk towards the common one Σ by n_c/(n_c + F), with κ tr(Σ)/F · I
    added, and scores an image by

        u(x) = −log Σ_c π_c N(φ; μ_c, Σ_c)   (``feature-density``, in nats).

    With ``density-features`` "stages", φ also has the means over pixels of what each convolution
    takes that widens the network, if one does, and covariances are 0 between stages.

    In a second message clients send a histogram of u over the examples that they have held back.
    The familiarity a(x) of an example is the share of these whose density is lower; beyond the five
    strangest it falls as their excesses do. An example below ``familiarity-threshold`` is unlike
    the training data. Below 0.002 its probabilities p become w p + (1 − w)/C with w = a/0.002
    (``familiarity-mixing``), and what they gain in uncertainty is epistemic. Of examples that are
    like the training data this costs at most 0.002 nats on average.

    Under privacy's noise the server leaves out classes whose count is below three standard
    deviations of its noise. Covariances get what noise makes of their eigenvalues.

    Reference: Mukhoti et al. (2023), "Deep deterministic uncertainty"; Friedman (1989),
    "Regularized discriminant analysis", for the shrinkage.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    density_shrinkage: float = Field(
        1e-3, gt=0.0, le=1.0, description="κ: how much of the mean variance covariances get"
    )
    density_features: Literal["last", "stages"] = Field(
        "stages",
        description="what the density of features sees: what the last layer takes, or also what "
        "the convolutions take that widen the network, if any do",
    )
    familiarity_threshold: float = Field(
        0.01,
        gt=0.0,
        lt=1.0,
        description="the familiarity below which an example is unlike the training data",
    )
    familiarity_mixing: bool = Field(
        True,
        description="whether probabilities go to the uniform where the familiarity is below 0.002",
    )

    @property
    def sees_stages(self) -> bool:
        """True if it takes features of the stages before the last layer as well."""
        return self.density_features == "stages"

    def measurements(self) -> Sequence[Measurement]:
        """Return that of moments, and that of held-back examples' scores."""
        return (
            MomentsByClass(self.density_shrinkage, sees_stages=self.sees_stages),
            ScoresOfHeldBack(self.familiarity_threshold, mixes=self.familiarity_mixing),
        )


def density(known: Known, features: Sequence[Array]) -> Array:
    """Return u (N,) of the last layer's features (N, F) and of those of stages before."""
    logs: list[Any] = [np.log(share) for share in known[SHARES]]
    for stage, name in enumerate(means_of_stages(known)):
        phi, factors = features[stage], known[f"{FACTORS}{_suffix(stage)}"]
        for label, (mean, factor) in enumerate(zip(known[name], factors, strict=True)):
            square = (((phi - mean) @ factor) ** 2).sum(axis=1)
            log_scale = np.linalg.slogdet(factor)[1] - phi.shape[1] / 2 * np.log(2 * np.pi)
            logs[label] = logs[label] + log_scale - square / 2
    return np.asarray(-np.logaddexp.reduce(logs, axis=0))


def familiarity(known: Known, scores: Array) -> Array | None:
    """Return what share of held-back examples, each of some examples with them, scores higher.

    This is the conformal p-value (m + 1)/(n + 1) of scores (N,), linear within a bin. Beyond the k
    highest scores, of a mean excess e, it is the predictive tail (k + 1)/(n + 1) (1 + x/(k e))^−k
    of an exponential one. So of exchangeable examples about a share t is below t, also with few
    held back, where scores fall off as exponential ones or faster. Under noise it is m/n. None
    where there is no histogram.
    """
    if FAMILIARITY not in known:
        return None
    counts = known[FAMILIARITY]
    total = counts.sum()
    edges = np.arange(len(counts) + 1.0)
    above = np.concatenate([counts[::-1].cumsum()[::-1], [0.0]])
    place = np.clip(_places(known, scores), 0.0, len(counts))
    higher = np.interp(place, edges, above)
    if DEVIATION in known:
        return np.asarray(higher / total)
    # The place above which there are as many as the tail has, but for no more than half of all.
    tail = min(float(TAIL), total / 2)
    # The excesses are those over the next one, the (k + 1)-th highest.
    start = float(np.interp(-(tail + 1.0), -above, edges))
    beyond = np.minimum(counts, above[:-1].clip(max=tail) - above[1:].clip(max=tail))
    mean, scale = _scale(known)
    at = np.interp(start, edges, EDGES)
    middles = (np.maximum(EDGES[:-1], at) + EDGES[1:]) / 2
    excess = float((beyond * np.maximum(middles - at, 0.0)).sum() / tail)
    apart = np.minimum((scores - mean) / scale, EDGES[-1]) - at  # the last bin has all beyond
    falling = (1.0 + np.maximum(apart, 0.0) / (tail * max(excess, 1e-9))) ** -tail
    counted = np.where(apart > 0.0, (tail + 1.0) * falling, higher + 1.0)
    return np.asarray(counted / (total + 1.0))


def _places(known: Known, scores: Array) -> Array:
    """Return where scores (N,) lie among the edges of bins, as a number of bins."""
    mean, scale = _scale(known)
    half = (len(EDGES) - 1) / 2
    return np.asarray(half + np.arcsinh((scores - mean) / scale) / REACH * half)


def _scale(known: Known) -> tuple[float, float]:
    """Return mean and deviation of the scores that features have which are Gaussian by class."""
    of_class = -np.log(known[SHARES])
    widths = 0
    for stage, name in enumerate(means_of_stages(known)):
        width = known[name].shape[1]
        log_scale = np.linalg.slogdet(known[f"{FACTORS}{_suffix(stage)}"])[1]
        of_class = of_class + width / 2 * (1.0 + np.log(2 * np.pi)) - log_scale
        widths += width
    return float(known[SHARES] @ of_class), float(np.sqrt(widths / 2))


def means_of_stages(arrays: Container[str]) -> list[str]:
    """Return the names of the means that were found: the last layer's, and those of stages."""
    names = (f"{MEANS}{_suffix(stage)}" for stage in count())
    return list(takewhile(arrays.__contains__, names))


def found_shapes(classes: int, widths: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what is found besides shares, of classes and widths of stages."""
    shapes: dict[str, tuple[int, ...]] = {}
    for stage, width in enumerate(widths):
        shapes[f"{MEANS}{_suffix(stage)}"] = (classes, width)
        shapes[f"{FACTORS}{_suffix(stage)}"] = (classes, width, width)
    return shapes


def _suffix(stage: int) -> str:
    """Return what names of a stage's arrays end with; 0 is that of the last layer."""
    return f".{stage}" if stage else ""


def _moments(sums: Sums) -> Iterator[tuple[Array, Array]]:
    """Yield Σ φ and Σ φφᵀ by class of each stage, the last layer's first."""
    for name in sums:
        if name.startswith("first"):
            yield sums[name], sums[name.replace("first", "second")]


def _whitening(covariance: Array) -> Array:
    """Return factors B (..., F, F) with B Bᵀ the inverse of a covariance.

    What float32 sums have rounded below 0 counts as 0: the ridge that was added keeps it positive.
    Sums of a client that lies may leave no positive value at all, and the factors stay finite.
    """
    values, vectors = np.linalg.eigh(covariance)
    single = np.finfo(np.float32)
    floor = np.maximum(values.max(axis=-1, keepdims=True) * single.eps, single.tiny)
    return np.asarray(vectors / np.sqrt(np.maximum(values, floor))[..., None, :])
