"""Density of an example's features, and its place among those of held-back examples."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.closing import base
from bfl.closing.base import Array, Closing, Examples, Histogram, Known, Measurement, Sizes, Sums

DENSITY = "feature-density"  # the score, higher the further from the training data
SHARES, MEANS, FACTORS = "density-shares", "density-means", "density-factors"
"""By K classes: n_c/n (K,), means (K, F), and factors (K, F, F) of the covariances' inverses."""

FAMILIARITY = "familiarity-counts"  # the histogram of held-back examples' scores
UNFAMILIAR, MIXES = "familiarity-threshold", "familiarity-mixing"
MIXED_BELOW = 0.002
"""Mixing below this familiarity costs at most ∫ −log(a/0.002) da = 0.002 nats on average."""
SHRINKAGE = 1e-3  # κ: how much of the mean variance covariances get

REACH = 20.0
EDGES = np.sinh(np.linspace(-REACH, REACH, 4001))
"""Edges of the bins of scores, in deviations from the mean of what Gaussian features have."""

TAIL = 5  # held-back examples beyond whose scores there is a tail, which their excesses describe


@base.closings.register("feature-density")
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
    the training data. Below t = 0.002, or a lower such threshold, its probabilities p become
    w p + (1 − w)/C with w = a/t (``familiarity-mixing``), and what they gain in uncertainty is
    epistemic. Of examples that are like the training data this costs at most t nats on average.

    Reference: Mukhoti et al. (2023), "Deep deterministic uncertainty"; Friedman (1989),
    "Regularized discriminant analysis", for the shrinkage.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    density_features: Literal["last", "stages"] = "stages"
    """what the density of features sees: what the last layer takes, or also what the convolutions
    take that widen the network, if any do"""
    familiarity_threshold: float = Field(0.01, gt=0.0, lt=1.0)
    """the familiarity below which an example is unlike the training data"""
    familiarity_mixing: bool = True
    """whether probabilities go to the uniform where the familiarity is below 0.002"""

    def measurements(self) -> Sequence[Measurement]:
        """Return that of moments, and that of held-back examples' scores."""
        return _MomentsByClass(self.density_features == "stages"), _ScoresOfHeldBack(self)


@dataclass(frozen=True)
class _MomentsByClass(Measurement):
    """Counts n_c of trained examples by class, and by stage Σ φ and Σ φφᵀ of their features."""

    by_stages: bool

    def sums(self, sizes: Sizes) -> Mapping[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {"counts": (sizes.classes,)}
        before = sizes.stages if self.by_stages else ()
        widths = zip(stages("first", "second"), (sizes.features, *before), strict=False)
        for (first, second), width in widths:
            found[first] = (sizes.classes, width)
            found[second] = (sizes.classes, base.packed_size(width))
        return found

    def measure(self, known: Known, examples: Examples) -> Sums:
        sums = {name: np.zeros(shape) for name, shape in self.sums(examples.sizes).items()}
        sums["counts"] += np.bincount(examples.labels, minlength=examples.classes)
        parts, names = [examples.features[:, :-1], *examples.stages], ("first", "second")
        for (first, second), phi in zip(stages_in(sums, *names), parts, strict=False):
            for label in np.flatnonzero(sums["counts"]):
                own = phi[examples.labels == label]
                sums[first][label], sums[second][label] = own.sum(axis=0), base.pack(own.T @ own)
        return sums

    def find_problem(self, sums: Sums, examples: int) -> str | None:
        counts = sums["counts"]
        if problem := base.count_problem(counts, examples):
            return problem
        for first, second in stages_in(sums, "first", "second"):
            matrices, width = base.unpack(sums[second]), sums[first].shape[1]
            squares = np.diagonal(matrices, axis1=1, axis2=2).sum(axis=1)
            most = base.greatest(1) * counts * (1.0 + base.ROUNDED)
            if (squares > most + base.ROUNDED * examples).any():
                return "second moments of features that are too long"
            # Σ (φ, 1)(φ, 1)ᵀ has no eigenvalue below 0, and so neither has the covariance.
            bordered = np.zeros((len(counts), width + 1, width + 1))
            bordered[:, :-1, :-1] = matrices
            bordered[:, -1, :-1] = bordered[:, :-1, -1] = sums[first]
            bordered[:, -1, -1] = counts
            rounding = base.ROUNDED * (examples + np.abs(matrices).max(axis=(1, 2)))
            if (np.linalg.eigvalsh(bordered)[:, 0] < -rounding).any():
                return "moments that no features have"
        return None

    def fold(self, known: Known, sums: Sums) -> Known:
        there = sums["counts"] >= 0.5
        if not there.any():
            return known
        counts = sums["counts"][there]
        found: dict[str, Array] = {SHARES: counts / counts.sum()}
        for (first, second), (mean, factor) in zip(
            stages_in(sums, "first", "second"), stages(MEANS, FACTORS), strict=False
        ):
            means = sums[first][there] / counts[:, None]
            outer = means[:, :, None] * means[:, None, :]
            scatter = base.unpack(sums[second][there]) - counts[:, None, None] * outer
            common = scatter.sum(axis=0) / counts.sum()
            width = len(common)
            least = max(np.trace(common) / width, np.finfo(np.float32).tiny)
            ridge = SHRINKAGE * least * np.eye(width)
            own = (scatter + width * common) / (counts + width)[:, None, None]
            for name, value in ((mean, means), (factor, _whitening(own + ridge))):
                found[name] = value.astype(np.float32).astype(np.float64)  # as clients get them
        return {**known, **found}


def _whitening(covariance: Array) -> Array:
    """Return factors B (..., F, F) with B Bᵀ the inverse of a covariance.

    What float32 sums have rounded below 0 counts as 0: the ridge that was added keeps it positive.
    Sums of a client that lies may leave no positive value at all, and the factors stay finite.
    """
    values, vectors = np.linalg.eigh(covariance)
    single = np.finfo(np.float32)
    floor = np.maximum(values.max(axis=-1, keepdims=True) * single.eps, single.tiny)
    return np.asarray(vectors / np.sqrt(np.maximum(values, floor))[..., None, :])


@dataclass(frozen=True)
class _ScoresOfHeldBack(Histogram):
    """The histogram of the scores of held-back examples."""

    settings: FeatureDensity
    inputs: ClassVar[tuple[str, ...]] = (SHARES, MEANS, FACTORS)
    bins: ClassVar[int] = len(EDGES) - 1

    def places(self, known: Known, examples: Examples) -> npt.NDArray[np.int64]:
        if SHARES not in known:
            return np.zeros(0, np.int64)
        found = density(known, [examples.features[:, :-1], *examples.stages])
        return np.clip(_places(known, found).astype(np.int64), 0, self.bins - 1)

    def fold(self, known: Known, sums: Sums) -> Known:
        if SHARES not in known or sums["counts"].sum() < 0.5:
            return known
        threshold, mixes = self.settings.familiarity_threshold, self.settings.familiarity_mixing
        decided = {UNFAMILIAR: np.array(threshold), MIXES: np.array(mixes)}
        return {**known, FAMILIARITY: sums["counts"], **decided}


def density(known: Known, features: Sequence[Array]) -> Array:
    """Return u (N,) of the last layer's features (N, F) and of those of stages before."""
    logs: list[Any] = [np.log(share) for share in known[SHARES]]
    for (mean, factor), phi in zip(stages_in(known, MEANS, FACTORS), features, strict=False):
        for label, (centre, whitening) in enumerate(zip(known[mean], known[factor], strict=True)):
            square = (((phi - centre) @ whitening) ** 2).sum(axis=1)
            log_scale = np.linalg.slogdet(whitening)[1] - phi.shape[1] / 2 * np.log(2 * np.pi)
            logs[label] = logs[label] + log_scale - square / 2
    return np.asarray(-np.logaddexp.reduce(logs, axis=0))


def familiarity(known: Known, scores: Array) -> Array | None:
    """Return what share of held-back examples, each of some examples with them, scores higher.

    This is the conformal p-value (m + 1)/(n + 1) of scores (N,), linear within a bin. Beyond the k
    highest scores, of a mean excess e, it is the predictive tail (k + 1)/(n + 1) (1 + x/(k e))^−k
    of an exponential one. So of exchangeable examples about a share t is below t, also with few
    held back, where scores fall off as exponential ones or faster. None where there is no
    histogram.
    """
    if FAMILIARITY not in known:
        return None
    counts = known[FAMILIARITY]
    total = counts.sum()
    edges = np.arange(len(counts) + 1.0)
    above = np.concatenate([counts[::-1].cumsum()[::-1], [0.0]])
    place = np.clip(_places(known, scores), 0.0, len(counts))
    higher = np.interp(place, edges, above)
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


def unlike_by_chance(counts: Array, threshold: float, examples: int) -> tuple[int, str]:
    """Return how many of so many examples may lie below a threshold by chance, and this in words.

    The examples are like the n held-back ones of ``counts``, by which they are judged. Which ones
    were held back decides the share below the threshold t, Beta(t (n + 1), (1 − t) (n + 1)). The
    number is the 95 % quantile. Simulated scores of five kinds of tails keep to it in 93 to 98 %.

    Source: Wilks (1941), "Determination of sample sizes for setting tolerance limits".
    """
    from scipy.special import betaln, gammaln

    held_back, number = round(counts.sum()), np.arange(examples + 1)
    a, b = threshold * (held_back + 1), (1.0 - threshold) * (held_back + 1)
    ways = gammaln(examples + 1) - gammaln(number + 1) - gammaln(examples - number + 1)
    shares = np.exp(ways + betaln(number + a, examples - number + b) - betaln(a, b))
    most = int(np.searchsorted(np.cumsum(shares), 0.95))
    return most, f"of {examples:,} ordinary ones, up to {most:,} would be by chance"


def _places(known: Known, scores: Array) -> Array:
    mean, scale = _scale(known)
    half = (len(EDGES) - 1) / 2
    return np.asarray(half + np.arcsinh((scores - mean) / scale) / REACH * half)


def _scale(known: Known) -> tuple[float, float]:
    """Return mean and deviation of the scores that features have which are Gaussian by class."""
    of_class, widths = -np.log(known[SHARES]), 0
    for _, factor in stages_in(known, MEANS, FACTORS):
        width = known[factor].shape[1]
        log_scale = np.linalg.slogdet(known[factor])[1]
        of_class = of_class + width / 2 * (1.0 + np.log(2 * np.pi)) - log_scale
        widths += width
    return float(known[SHARES] @ of_class), float(np.sqrt(widths / 2))


def stages(*names: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of arrays of the last layer, and of each stage before it, without end."""
    yield names
    yield from (tuple(f"{name}.{stage}" for name in names) for stage in count(1))


def stages_in(arrays: Container[str], *names: str) -> list[tuple[str, ...]]:
    """Return the names of arrays of the last layer, and of the stages that are there."""
    return list(takewhile(lambda each: each[0] in arrays, stages(*names)))
