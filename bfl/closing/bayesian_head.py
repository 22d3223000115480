"""A Bayesian last layer whose precision and temperature examples that nobody trained on decide."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.closing import curvature
from bfl.closing.base import (
    DEVIATION,
    FEATURE_BOUND,
    FROM_HEAD,
    HEAD,
    LEAST_LIKELIHOOD,
    LONGEST,
    ROUNDED,
    WHOLE,
    Array,
    Closing,
    Examples,
    Known,
    Measurement,
    Shapes,
    Sizes,
    Sums,
    closings,
)
from bfl.evaluation.prediction.statistics import log_softmax

VECTORS, VALUES = "head-vectors", "head-values"
"""The curvature's eigenvectors (B, S, S) and eigenvalues (B, S), by block.

The values are those of H alone until the prior's precision is picked, and of H + δI from then on.
"""

STEP = "head-gradient"
"""The gradient (B, S) of ℓ along the eigenvectors."""

PRECISION = "head-prior-precision"
"""The δ that was picked; infinite where the last layer stays a point."""

TEMPERATURE = "temperature"

BEFORE, AFTER, HELD_BACK = "held-back-nll-before", "held-back-nll", "held-back-examples"
"""NLL of the network as it is and of the one that was picked, and of how many examples."""

PRECISIONS = np.geomspace(1e-2, 1e5, 15)
"""Prior precisions δ that are tried, besides that of a point, which is infinite."""

TEMPERATURES = 2.0 ** (np.arange(-5, 6) / 4)
"""Temperatures that are tried, 19 % apart, 1 among them."""

SHARPENING = 1.0
"""Nats, of all held-back examples together, that a temperature below 1 has to be worth.

As a parameter costs in Akaike's criterion. Where the network is right about every one of a few
examples, the sharpest is the likeliest of all, by next to nothing, and the first error costs much.
"""

STEPS = (0.0, 1.0)
"""Shares of the Newton step to the mode that are tried."""

CANDIDATES = (len(STEPS) * len(PRECISIONS) + 1) * len(TEMPERATURES)
POINTS = CANDIDATES - len(TEMPERATURES) + len(TEMPERATURES) // 2
"""The number of candidates, and which of them is the network's own last layer."""

DRAWS = 64
"""Draws of the logits that a prediction is the mean of, in pairs of opposite ones."""

AT_ONCE = 500
"""Examples whose draws and likelihoods are in memory at once."""

NOISED_GAIN = 1.0
"""The most nats by which an example's likelihood under a candidate is better, where noise hides it.
"""


@dataclass(frozen=True)
class Head:
    """The last layer's Gaussian posterior, as what it makes of features.

    Attributes:
        weights: (F + 1, C) its mean.
        vectors: (B, S, S) eigenvectors of its precision, all classes' or of each class; no block
            where the layer is a point.
        values: (B, S) the eigenvalues.
        temperature: T, by which logits are divided.
    """

    weights: Array
    vectors: Array
    values: Array
    temperature: float = 1.0

    @classmethod
    def of(cls, known: Known) -> Head:
        """Return the last layer that closings have found."""
        vectors = np.asarray(known.get(VECTORS, np.zeros((0, 0, 0))), np.float64)
        values = np.asarray(known.get(VALUES, np.zeros((0, 0))), np.float64)
        weights = np.asarray(known[HEAD], np.float64)
        return cls(weights, vectors, values, float(known.get(TEMPERATURE, 1.0)))

    def logits(self, features: Array) -> Iterator[Array]:
        """Yield draws of the logits (N, C) of features (N, F + 1), divided by the temperature.

        The weights' Gaussian makes the logits of an example Gaussian, of mean Wᵀφ̃ and of the
        covariance V = J S Jᵀ. The same 64 normal vectors are drawn for all examples, always.
        """
        mean = features @ self.weights / self.temperature
        if not len(self.vectors):
            yield mean
            return
        root = self.root(self.along(features), self.values) / self.temperature
        for normal in normals(mean.shape[1]):
            yield mean + root @ normal

    def along(self, features: Array) -> Array:
        """Return the derivatives of the logits along the eigenvectors.

        They are (N, C, S) where there is one block, and (C, N, S) where each class has one.
        """
        if len(self.vectors) > 1:
            return features @ self.vectors
        by_class = self.vectors[0].reshape(self.weights.shape[1], features.shape[1], -1)
        return np.asarray((features @ by_class).transpose(1, 0, 2))

    def root(self, along: Array, values: Array) -> Array:
        """Return L (N, C, C) with L Lᵀ the covariance of the logits."""
        if len(self.vectors) > 1:
            deviation = np.sqrt((along**2 / values[:, None, :]).sum(axis=2)).T
            return np.asarray(np.eye(len(along)) * deviation[:, None, :])
        scaled = along / np.sqrt(values[0])
        return np.asarray(np.linalg.cholesky(scaled @ scaled.transpose(0, 2, 1)))


def normals(classes: int) -> Array:
    """Return 64 standard normal vectors (64, C), each with its opposite: always the same."""
    generator = randomness.generator(0, "closing", "logits", classes)
    half = generator.standard_normal((DRAWS // 2, classes))
    return np.concatenate([half, -half])


class HeadCurvature(Measurement):
    """The gradient and the curvature of the last layer's log-likelihood, of trained examples."""

    told: ClassVar[tuple[str, ...]] = (HEAD,)

    def __init__(self, most_exact: int) -> None:
        self._most_exact = most_exact

    def form(self, sizes: Sizes) -> curvature.Form:
        """Return the form of the curvature: the full one where that is small enough."""
        weights = (sizes.features + 1) * sizes.classes
        return "full" if weights <= self._most_exact else "blocks"

    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shapes of g and the curvature."""
        width, classes = sizes.features + 1, sizes.classes
        of_curvature = curvature.shape(self.form(sizes), width, classes)
        return {"gradient": (width, classes), "curvature": of_curvature}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return g and the curvature at the network's own last layer."""
        phi, labels = examples.features, examples.labels
        probability = np.exp(log_softmax(phi @ known[HEAD]))
        residual = -probability
        residual[np.arange(len(labels)), labels] += 1.0
        found = curvature.measure(self.form(examples.sizes), probability, phi)
        return {"gradient": phi.T @ residual, "curvature": found}

    def lengths(self, longest: float, sizes: Sizes) -> Mapping[str, float]:
        """Return those of the gradient, ‖φ̃‖ ‖e_y − p‖ ≤ √2 ‖φ̃‖, and of the curvature."""
        with_bias = math.hypot(longest, 1.0)
        of_curvature = curvature.greatest_length(self.form(sizes), with_bias, sizes.classes)
        return {"gradient": math.sqrt(2.0) * with_bias, "curvature": of_curvature}

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the eigenvectors and values of the curvature, and the gradient along them."""
        # What all classes have alike changes no prediction.
        head, gradient = (
            w - w.mean(axis=1, keepdims=True) for w in (known[HEAD], sums["gradient"])
        )
        sizes = Sizes(len(head) - 1, head.shape[1])
        unit = self.lengths(float(known.get(LONGEST, FEATURE_BOUND)), sizes)["curvature"]
        noise = float(known.get(DEVIATION, 0.0)) * unit
        blocks = curvature.blocks_of(self.form(sizes), sums["curvature"], sizes.classes, noise)
        return {**known, HEAD: head, **along_eigenvectors(blocks, gradient)}


def along_eigenvectors(blocks: Array, gradient: Array) -> Known:
    """Return the eigenvectors and values of a curvature (B, S, S), and a gradient along them.

    Clients get the vectors in float32, and predictions are to be of the same.
    """
    values, vectors = np.linalg.eigh(blocks)
    vectors = vectors.astype(np.float32).astype(np.float64)
    slope = vectors.transpose(0, 2, 1) @ gradient.T.reshape(*values.shape, 1)
    return {VECTORS: vectors, VALUES: np.maximum(values, 0.0), STEP: slope[:, :, 0]}


class HeldBackGains(Measurement):
    """By how much likelier held-back examples are under each candidate than under the points.

    Attributes:
        most_likely: The greatest log-likelihood that an example can have.
    """

    told: ClassVar[tuple[str, ...]] = (HEAD, VECTORS, VALUES, STEP)
    on_held_back: ClassVar[bool] = True
    compares_draws: ClassVar[bool] = True
    most_likely: ClassVar[float] = 0.0

    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shapes of the number of examples, their ℓ, and the gains of candidates."""
        return {"examples": (), "log-likelihood": (), "gains": (CANDIDATES + 1,)}

    def likelihoods(self, known: Known, examples: Examples) -> Array:
        """Return the log-likelihood of examples under each candidate, (candidates, N)."""
        return np.array([*candidate_likelihoods(known, examples.features, examples.labels)])

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return the sums; the last gain is that of draws of the whole network."""
        count, likelihood, gains = len(examples.labels), 0.0, np.zeros(CANDIDATES + 1)
        for start in range(0, count, AT_ONCE):
            part = examples.take(slice(start, start + AT_ONCE))
            found = self.likelihoods(known, part)
            points = np.maximum(found[POINTS], LEAST_LIKELIHOOD)
            own = points if part.own is None else part.own
            gained = np.maximum([*found, own], LEAST_LIKELIHOOD) - points
            if examples.noised:
                gained = np.clip(gained, -NOISED_GAIN, NOISED_GAIN)
            gains += gained.sum(axis=1)
            likelihood += float(points.sum())
        likelihood = 0.0 if examples.noised else likelihood
        return {
            "examples": np.array(float(count)),
            "log-likelihood": np.array(likelihood),
            "gains": gains,
        }

    def lengths(self, longest: float, sizes: Sizes) -> Mapping[str, float]:
        """Return that of the gains, each at most 1 nat; ℓ is not sent under noise."""
        gains = NOISED_GAIN * math.sqrt(CANDIDATES + 1)
        return {"examples": 0.0, "log-likelihood": 0.0, "gains": gains}

    def find_problem(self, sums: Sums, examples: int, *, noised: bool = False) -> str | None:
        """Return what of the likelihoods so many examples cannot have."""
        count, likelihood = float(sums["examples"]), float(sums["log-likelihood"])
        if not -WHOLE <= count <= examples + WHOLE:
            return f"they are of {count:g}"
        likelihoods = likelihood + np.append(sums["gains"], 0.0)
        slack = ROUNDED * (examples + abs(likelihood))
        most, least = self.most_likely * count + slack, LEAST_LIKELIHOOD * count - slack
        if noised or (least <= likelihoods.min() and likelihoods.max() <= most):
            return None
        return "log-likelihoods above the greatest, or below the least"

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the last layer of the likeliest candidate, or that none was found."""
        gains, count = sums["gains"], float(sums["examples"])
        noise = float(known.get(DEVIATION, 0.0)) * self.lengths(0.0, Sizes(0, 0))["gains"]
        best = likeliest(gains, count, noise)
        found = last_layer_of(best, known)
        if noise or count < 1.0:
            return found
        before, after = float(sums["log-likelihood"]) + gains[[CANDIDATES, best]]
        nll = {BEFORE: np.array(-before / count), AFTER: np.array(-after / count)}
        return {**found, HELD_BACK: np.array(count), **nll}


def likeliest(gains: Array, count: float, noise: float) -> int:
    """Return the candidate of the largest gain, but for what ``SHARPENING`` asks.

    Under noise, the network stays as it is unless the gain is certain: the largest of n gains that
    are nothing but noise is about its deviation times √(2 log n).
    """
    worth = gains.copy()
    worth[:CANDIDATES].reshape(-1, len(TEMPERATURES))[:, TEMPERATURES < 1.0] -= SHARPENING
    best = int(np.argmax(worth)) if count >= 1.0 else POINTS
    certain = not noise or gains[best] > noise * math.sqrt(2.0 * math.log(len(gains)))
    return best if certain else CANDIDATES


def last_layer_of(candidate: int, known: Known) -> Known:
    """Return what is known with a candidate; the last of them is the network as it is."""
    point = {k: v for k, v in known.items() if k not in (VECTORS, VALUES, STEP)}
    if candidate == CANDIDATES:
        return {**point, FROM_HEAD: np.array(False)}
    number, at = divmod(candidate, len(TEMPERATURES))
    point |= {PRECISION: np.array(np.inf), TEMPERATURE: np.array(TEMPERATURES[at])}
    if number == len(PRECISIONS) * len(STEPS):
        return point
    at, share = divmod(number, len(STEPS))
    values = known[VALUES] + PRECISIONS[at]
    return {
        **point,
        HEAD: known[HEAD] + STEPS[share] * newton_step(known, values),
        PRECISION: np.array(PRECISIONS[at]),
        VECTORS: known[VECTORS],
        VALUES: values,
    }


def candidate_likelihoods(
    known: Known, features: Array, labels: npt.NDArray[np.integer[Any]]
) -> Iterator[Array]:
    """Yield the log-likelihood of each example (N,) under each candidate for the last layer.

    By ``PRECISIONS``, for each by ``STEPS``, and for each by ``TEMPERATURES``; the points of each
    temperature come last.

    Args:
        known: What ``HeadCurvature`` has found.
        features: (N, F + 1) features.
        labels: (N,) classes.
    """
    head = Head.of(known)
    along, mean = head.along(features), features @ head.weights
    drawn = normals(mean.shape[1])
    for precision in PRECISIONS:
        values = head.values + precision
        root = head.root(along, values)
        apart = (root.reshape(-1, mean.shape[1]) @ drawn.T).reshape(*mean.shape, DRAWS)
        step = features @ newton_step(known, values)
        for share in STEPS:
            logits = (mean + share * step)[:, :, None] + apart
            yield from _by_temperature(logits, labels)
    yield from _by_temperature(mean[:, :, None], labels)


def newton_step(known: Known, values: Array) -> Array:
    """Return the step (F + 1, C) to the mode, around which the prior has its mean.

    It is 0 for outputs whose weights have no posterior.
    """
    width, outputs = known[HEAD].shape
    step = (known[VECTORS] @ (known[STEP] / values)[:, :, None]).reshape(-1, width).T
    return np.pad(step, ((0, 0), (0, outputs - step.shape[1])))


def _by_temperature(logits: Array, labels: npt.NDArray[np.integer[Any]]) -> Iterator[Array]:
    """Yield the log-likelihoods (N,) of the mean predictions of logits (N, C, M)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    for temperature in TEMPERATURES:
        share = np.exp(shifted / temperature)
        of_label = share[np.arange(len(labels)), labels] / share.sum(axis=1)
        yield np.log(np.maximum(of_label.mean(axis=1), np.finfo(np.float64).tiny))


@closings.register("bayesian-head")
class BayesianHead(Closing):
    """The last layer's Gaussian posterior, as wide as examples that nobody trained on say.

    With features φ̃ = (φ, 1) of the network at its posterior's mean, W its own last layer and p =
    softmax(Wᵀφ̃), each client sends g = Σ φ̃ (e_y − p)ᵀ and the curvature H, of the examples that
    it trains on: all of it up to 2,000 weights, and beyond them its block of each class. Candidates
    for the last layer are N(W + s d, (H + δI)⁻¹) with the Newton step d = (H + δI)⁻¹ g and s of 0
    and 1, for 15 precisions δ, and W as a point; each with 11 temperatures. In a second message
    each client sends the log-likelihood of examples that it has held back (``calibration-share``)
    under the mean predictions of each, and under those of draws of the whole network. The server
    takes the best of all, but for ``SHARPENING``. So the closing never raises the negative
    log-likelihood of held-back examples.

    Predictions are the mean over 64 draws of the logits, which are Gaussian for each example.

    The evidence of the trained examples cannot pick δ: W explains them already, so it grows with δ
    without end.

    Under privacy's noise a gain counts with at most 1 nat an example, and a candidate has to gain
    more than noise alone would; else predictions stay as they are.

    Reference: MacKay (1992), "The evidence framework applied to classification networks"; Daxberger
    et al. (2021), "Laplace redux", for last layers.
    """

    moves_head: ClassVar[bool] = True
    most_exact: ClassVar[int] = 2000

    def measurements(self) -> Sequence[Measurement]:
        """Return the curvature's, and that of held-back examples."""
        return (HeadCurvature(self.most_exact), HeldBackGains())
