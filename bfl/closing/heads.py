"""Bayesian last layers, of classes and of numbers, as wide as held-back examples say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from bfl import randomness
from bfl.closing import base
from bfl.closing.base import (
    HEAD,
    Array,
    Closing,
    Examples,
    Histogram,
    Known,
    Measurement,
    Sizes,
    Sums,
)
from bfl.data.datasets.encoding import LEAST_NOISE
from bfl.evaluation.prediction.predictions import log_softmax
from bfl.evaluation.regression import INTERVAL, LEVEL, Mixtures, negative_log_likelihoods

VECTORS, VALUES = "head-vectors", "head-values"  # of H by block (B, S, S), (B, S); then of H + δI
STEP = "head-gradient"  # of the log-likelihood along the eigenvectors (B, S)
PRECISION = "head-prior-precision"  # the δ that was picked; infinite where the layer is a point
TEMPERATURE = "temperature"
BEFORE, AFTER, HELD_BACK = "held-back-nll-before", "held-back-nll", "held-back-examples"
NUMBERS = "predicts-numbers"  # there, and true, where the last layer predicts numbers

PRECISIONS = np.geomspace(1e-2, 1e5, 15)
STEPS = (0.0, 1.0)
TEMPERATURES = 2.0 ** (np.arange(-5, 6) / 4)
OWN = (math.inf, 0.0, 1.0)  # the network's own last layer, a point
CANDIDATES = [
    (*layer, temperature)
    for layer in (*product(PRECISIONS, STEPS), OWN[:2])
    for temperature in TEMPERATURES
]

SHARPENING = 1.0
"""Nats, of all held-back examples together, that a temperature below 1 has to be worth.

As in Akaike's criterion. Of a network that is right about a few examples the sharpest is likeliest.
"""

LEAST_LIKELIHOOD = -30.0  # nats that an example counts with
AT_ONCE = 500  # examples whose draws are in memory at once
DRAWS = 64  # of the logits, in pairs of opposite ones, whose mean a prediction is
POINTS_OF_NORMAL = ndtri((np.arange(DRAWS) + 0.5) / DRAWS)
POINTS_OF_NORMAL /= POINTS_OF_NORMAL.std()  # means of a mixture that stands for a standard normal


@base.closings.register("bayesian-head")
class BayesianHead(Closing):
    """The last layer's Gaussian posterior, as wide as examples that nobody trained on say.

    With features φ̃ = (φ, 1) of the network at its posterior's mean, W its own last layer and p =
    softmax(Wᵀφ̃), each client sends g = Σ φ̃ (e_y − p)ᵀ and the curvature H, of the examples that
    it trains on: all of it up to 2,000 weights, and beyond them its block of each class. Candidates
    for the last layer are N(W + s d, (H + δI)⁻¹) with the Newton step d = (H + δI)⁻¹ g and s of 0
    and 1, for 15 precisions δ, and W as a point; each with 11 temperatures. In a second message
    each client sends the log-likelihood of examples that it has held back (``calibration-share``)
    under the mean predictions of each, over 64 draws of the logits, and under those of draws of the
    whole network. The server takes the best of all, but for ``SHARPENING``. So the closing never
    raises the negative log-likelihood of held-back examples.

    Reference: MacKay (1992), "The evidence framework applied to classification networks"; Daxberger
    et al. (2021), "Laplace redux", for last layers.
    """

    moves_head: ClassVar[bool] = True
    most_exact: ClassVar[int] = 2000

    def measurements(self) -> Sequence[Measurement]:
        """Return the curvature's, and that of held-back examples."""
        return (_HeadCurvature(self.most_exact), _HeldBackGains())


@base.closings.register("gaussian-head")
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
    tasks: ClassVar[tuple[str, ...]] = ("regression",)

    def measurements(self) -> Sequence[Measurement]:
        """Return the curvature's, and those of held-back examples."""
        return (_MeanCurvature(), _HeldBackDensities(), _DistancesOfTargets())


@dataclass(frozen=True)
class _HeadCurvature(Measurement):
    """The gradient and the curvature of the last layer's log-likelihood, of trained examples.

    The negative Hessian is H = Σ (diag p − p pᵀ) ⊗ φ̃φ̃ᵀ, classes first. Up to ``most_exact`` weights
    clients send its triangle. Beyond, they send the triangle of each class's block, Σ p_c (1 − p_c)
    φ̃φ̃ᵀ, and H becomes these times C/(C − 1): right where all classes are equally probable, and at
    most twice as large as H everywhere, so that a Newton step goes uphill.

    Source: Böhning (1992), "Multinomial logistic regression algorithm".
    """

    most_exact: int
    inputs: ClassVar[tuple[str, ...]] = (HEAD,)

    def sums(self, sizes: Sizes) -> Mapping[str, tuple[int, ...]]:
        width, classes = sizes.features + 1, sizes.classes
        shape = (classes, base.packed_size(width))
        if width * classes <= self.most_exact:
            shape = (1, base.packed_size(width * classes))
        return {"gradient": (width, classes), "curvature": shape}

    def measure(self, known: Known, examples: Examples) -> Sums:
        phi, labels = examples.features, examples.labels
        probability = np.exp(log_softmax(phi @ known[HEAD]))
        residual = -probability
        residual[np.arange(len(labels)), labels] += 1.0
        full = residual.shape[1] * phi.shape[1] <= self.most_exact
        curvature = curvature_of(probability, phi) if full else blocks_of(probability, phi)
        return {"gradient": phi.T @ residual, "curvature": base.pack(curvature)}

    def fold(self, known: Known, sums: Sums) -> Known:
        # What all classes have alike changes no prediction.
        layers = (known[HEAD], sums["gradient"])
        head, gradient = (each - each.mean(axis=1, keepdims=True) for each in layers)
        classes = head.shape[1]
        blocks = base.unpack(sums["curvature"])
        if len(blocks) > 1:
            blocks = blocks * classes / (classes - 1)
        return {**known, HEAD: head, **along_eigenvectors(blocks, gradient)}


class _MeanCurvature(Measurement):
    """The gradient and the curvature of trained targets' log-likelihood, for the mean's weights.

    These are Σ ψ r and Σ ψψᵀ, with ψ = φ̃/σ and r = (y − μ)/σ up to a length of 1,000.
    """

    inputs: ClassVar[tuple[str, ...]] = (HEAD,)

    def sums(self, sizes: Sizes) -> Mapping[str, tuple[int, ...]]:
        width = sizes.features + 1
        return {"slope": (width,), "scatter": (base.packed_size(width),)}

    def measure(self, known: Known, examples: Examples) -> Sums:
        mean, noise = _outputs(known, examples.features)
        scaled = examples.features / np.sqrt(noise)[:, None]
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        scaled *= base.FEATURE_BOUND / np.maximum(lengths, base.FEATURE_BOUND)
        residual = (examples.targets - mean) / np.sqrt(noise)
        slope = scaled.T @ np.clip(residual, -base.FEATURE_BOUND, base.FEATURE_BOUND)
        return {"slope": slope, "scatter": base.pack(scaled.T @ scaled)}

    def fold(self, known: Known, sums: Sums) -> Known:
        found = along_eigenvectors(base.unpack(sums["scatter"])[None], sums["slope"])
        return {**known, NUMBERS: np.array(True), **found}


def curvature_of(probability: Array, features: Array) -> Array:
    """Return H as one block (1, S, S), from probabilities (N, C) and features (N, F + 1)."""
    classes, width = probability.shape[1], features.shape[1]
    hessian = np.empty((classes, width, classes, width))
    for a in range(classes):
        for b in range(a + 1):
            share = probability[:, a] * ((a == b) - probability[:, b])
            hessian[a, :, b] = hessian[b, :, a] = (features * share[:, None]).T @ features
    return hessian.reshape(1, classes * width, classes * width)


def blocks_of(probability: Array, features: Array) -> Array:
    """Return the block of H of each class (C, S, S)."""
    shares = probability * (1.0 - probability)
    return np.stack([(features * share[:, None]).T @ features for share in shares.T])


def along_eigenvectors(blocks: Array, gradient: Array) -> Known:
    """Return the eigenvectors and values of a curvature (B, S, S), and a gradient along them."""
    values, vectors = np.linalg.eigh(blocks)
    vectors = vectors.astype(np.float32).astype(np.float64)  # as clients get them
    slope = vectors.transpose(0, 2, 1) @ gradient.T.reshape(*values.shape, 1)
    return {VECTORS: vectors, VALUES: np.maximum(values, 0.0), STEP: slope[:, :, 0]}


class _HeldBackGains(Measurement):
    """Gains in log-likelihood of held-back examples by each candidate over the own last layer.

    The last gain is that of draws of the whole network.
    """

    inputs: ClassVar[tuple[str, ...]] = (HEAD, VECTORS, VALUES, STEP)
    on_held_back: ClassVar[bool] = True
    compares_draws: ClassVar[bool] = True
    most_likely: ClassVar[float] = 0.0  # greatest log-likelihood that an example can have

    def sums(self, sizes: Sizes) -> Mapping[str, tuple[int, ...]]:
        return {"examples": (), "log-likelihood": (), "gains": (len(CANDIDATES) + 1,)}

    def likelihoods(self, known: Known, examples: Examples) -> Iterator[Array]:
        """Yield the log-likelihood of each example (N,) under each candidate."""
        features, labels = examples.features, examples.labels
        along, mean = along_blocks(known, features), features @ known[HEAD]
        drawn = normals(mean.shape[1])
        for precision in PRECISIONS:
            values = known[VALUES] + precision
            root = root_of_covariance(along, values)
            apart = (root.reshape(-1, mean.shape[1]) @ drawn.T).reshape(*mean.shape, DRAWS)
            step = features @ newton_step(known, values)
            for share in STEPS:
                yield from _by_temperature((mean + share * step)[:, :, None] + apart, labels)
        yield from _by_temperature(mean[:, :, None], labels)

    def measure(self, known: Known, examples: Examples) -> Sums:
        count, likelihood, gains = len(examples.labels), 0.0, np.zeros(len(CANDIDATES) + 1)
        for start in range(0, count, AT_ONCE):
            part = examples.take(slice(start, start + AT_ONCE))
            found = [*self.likelihoods(known, part)]
            points = np.maximum(found[CANDIDATES.index(OWN)], LEAST_LIKELIHOOD)
            own = points if part.own is None else part.own
            gained = np.maximum([*found, own], LEAST_LIKELIHOOD) - points
            gains += gained.sum(axis=1)
            likelihood += float(points.sum())
        numbers = {"examples": np.array(float(count)), "log-likelihood": np.array(likelihood)}
        return {**numbers, "gains": gains}

    def find_problem(self, sums: Sums, examples: int) -> str | None:
        count, likelihood = float(sums["examples"]), float(sums["log-likelihood"])
        if not -base.WHOLE <= count <= examples + base.WHOLE:
            return f"they are of {count:g}"
        likelihoods = likelihood + np.append(sums["gains"], 0.0)
        slack = base.ROUNDED * (examples + abs(likelihood))
        most, least = self.most_likely * count + slack, LEAST_LIKELIHOOD * count - slack
        if least <= likelihoods.min() and likelihoods.max() <= most:
            return None
        return "log-likelihoods above the greatest, or below the least"

    def fold(self, known: Known, sums: Sums) -> Known:
        gains, count = sums["gains"], float(sums["examples"])
        sharper = [temperature < 1.0 for *_, temperature in CANDIDATES]
        best = int(np.argmax(gains - SHARPENING * np.array([*sharper, False])))
        picked = OWN if count < 1.0 else [*CANDIDATES, None][best]
        found = last_layer_of(picked, known)
        if count < 1.0:
            return found
        before, after = float(sums["log-likelihood"]) + gains[[-1, best]]
        nll = {BEFORE: np.array(-before / count), AFTER: np.array(-after / count)}
        return {**found, HELD_BACK: np.array(count), **nll}


class _HeldBackDensities(_HeldBackGains):
    """The gains of every other held-back target, in log-density."""

    most_likely: ClassVar[float] = -0.5 * math.log(2 * math.pi * LEAST_NOISE * TEMPERATURES[0] ** 2)

    def measure(self, known: Known, examples: Examples) -> Sums:
        return super().measure(known, examples.take(slice(0, None, 2)))

    def likelihoods(self, known: Known, examples: Examples) -> Iterator[Array]:
        mean, noise = _outputs(known, examples.features)
        along = (examples.features @ known[VECTORS][0]) ** 2
        candidates = []
        for precision in PRECISIONS:
            values = known[VALUES] + precision
            step = examples.features @ newton_step(known, values)[:, 0]
            spread = (along / values).sum(axis=1)
            candidates += [(mean + share * step, spread) for share in STEPS]
        for centre, spread in [*candidates, (mean, np.zeros_like(mean))]:
            for factor in TEMPERATURES:
                found = _mixtures(centre, noise, spread, factor)
                yield -negative_log_likelihoods(found, examples.targets)


def last_layer_of(candidate: tuple[float, float, float] | None, known: Known) -> Known:
    """Return what is known with a precision, step and temperature; None: draws of the network."""
    point = {k: v for k, v in known.items() if k not in (VECTORS, VALUES, STEP)}
    if candidate is None:
        return {**point, base.FROM_HEAD: np.array(False)}
    precision, share, temperature = candidate
    point |= {PRECISION: np.array(precision), TEMPERATURE: np.array(temperature)}
    if math.isinf(precision):
        return point
    values = known[VALUES] + precision
    head = known[HEAD] + share * newton_step(known, values)
    return {**point, HEAD: head, VECTORS: known[VECTORS], VALUES: values}


def newton_step(known: Known, values: Array) -> Array:
    """Return the step (F + 1, C) to the mode; 0 for outputs whose weights have no posterior."""
    width, outputs = known[HEAD].shape
    step = (known[VECTORS] @ (known[STEP] / values)[:, :, None]).reshape(-1, width).T
    return np.pad(step, ((0, 0), (0, outputs - step.shape[1])))


class _DistancesOfTargets(Histogram):
    """The histogram of how many predicted deviations held-back targets are from their means."""

    inputs: ClassVar[tuple[str, ...]] = (HEAD, base.FROM_HEAD, VECTORS, VALUES, TEMPERATURE)
    compares_draws: ClassVar[bool] = True
    bins: ClassVar[int] = 1000  # of z/(1 + z), with z the distance

    def places(self, known: Known, examples: Examples) -> npt.NDArray[np.int64]:
        examples = examples.take(slice(1, None, 2))  # the others have picked the last layer
        found = predict_numbers(known, examples.features)
        if examples.drawn is not None and not known[base.FROM_HEAD]:
            found = examples.drawn
        distances = np.abs(examples.targets - found.mean) / found.deviation
        return (self.bins * distances / (1.0 + distances)).astype(np.int64).clip(max=self.bins - 1)

    def fold(self, known: Known, sums: Sums) -> Known:
        place = base.rank_of(sums["counts"], LEVEL)
        if place is None:
            return known
        edge = min(place + 1.0, self.bins - 0.5) / self.bins
        return {**known, INTERVAL: np.array(edge / (1.0 - edge))}


def predict_numbers(known: Known, features: Array) -> Mixtures:
    """Return the predictions of features (N, F + 1) by the last layer that was found."""
    mean, noise = _outputs(known, features)
    spread = np.zeros_like(mean)
    if VECTORS in known:
        spread = ((features @ known[VECTORS][0]) ** 2 / known[VALUES]).sum(axis=1)
    return _mixtures(mean, noise, spread, float(known.get(TEMPERATURE, 1.0)))


def _outputs(known: Known, features: Array) -> tuple[Array, Array]:
    mean, rho = (features @ known[HEAD]).T
    return mean, np.logaddexp(0.0, rho) + LEAST_NOISE


def _mixtures(mean: Array, noise: Array, spread: Array, factor: float) -> Mixtures:
    apart = factor * np.sqrt(spread) * POINTS_OF_NORMAL[:, None]
    means = mean + (apart if spread.any() else apart[:1])
    return Mixtures(means, np.broadcast_to(factor**2 * noise, means.shape))


def draw_logits(known: Known, features: Array) -> Iterator[Array]:
    """Yield draws of the logits (N, C) of features (N, F + 1), divided by the temperature.

    The weights' Gaussian makes the logits of an example Gaussian, of mean Wᵀφ̃ and of the
    covariance V = J S Jᵀ. The same 64 normal vectors are drawn for all examples, always.
    """
    temperature = float(known.get(TEMPERATURE, 1.0))
    mean = features @ np.asarray(known[HEAD], np.float64) / temperature
    if VECTORS not in known:
        yield mean
        return
    values = np.asarray(known[VALUES], np.float64)
    root = root_of_covariance(along_blocks(known, features), values) / temperature
    for normal in normals(mean.shape[1]):
        yield mean + root @ normal


def along_blocks(known: Known, features: Array) -> Array:
    """Return the derivatives of the logits of features (N, F + 1) along the eigenvectors.

    They are (N, C, S) where there is one block, and (C, N, S) where each class has one.
    """
    vectors = np.asarray(known[VECTORS], np.float64)
    if len(vectors) > 1:
        return features @ vectors
    by_class = vectors[0].reshape(known[HEAD].shape[1], features.shape[1], -1)
    return np.asarray((features @ by_class).transpose(1, 0, 2))


def root_of_covariance(along: Array, values: Array) -> Array:
    """Return L (N, C, C) with L Lᵀ the covariance of the logits, from eigenvalues (B, S)."""
    if len(values) > 1:
        deviation = np.sqrt((along**2 / values[:, None, :]).sum(axis=2)).T
        return np.asarray(np.eye(len(along)) * deviation[:, None, :])
    scaled = along / np.sqrt(values[0])
    return np.asarray(np.linalg.cholesky(scaled @ scaled.transpose(0, 2, 1)))


def normals(classes: int) -> Array:
    """Return 64 standard normal vectors (64, C), each with its opposite: always the same."""
    generator = randomness.generator(0, "closing", "logits", classes)
    half = generator.standard_normal((DRAWS // 2, classes))
    return np.concatenate([half, -half])


def _by_temperature(logits: Array, labels: npt.NDArray[np.integer[Any]]) -> Iterator[Array]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    for temperature in TEMPERATURES:
        share = np.exp(shifted / temperature)
        of_label = share[np.arange(len(labels)), labels] / share.sum(axis=1)
        yield np.log(np.maximum(of_label.mean(axis=1), np.finfo(np.float64).tiny))
