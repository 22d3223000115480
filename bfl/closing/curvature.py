"""The curvature of a linear classifier's log-likelihood, in forms of different size.

The log-likelihood of weights W (F × C) is ℓ(W) = Σ_n log p_n[y_n] with p_n = softmax(Wᵀ φ_n). Its
negative Hessian is H = Σ_n (diag p − p pᵀ) ⊗ φ φᵀ. Every form gives it as blocks on the diagonal,
after a rotation of the classes: one for ``full``, one a class for the others.

| form | what clients send | numbers | H becomes |
| --- | --- | --- | --- |
| ``full`` | H | CF(CF + 1)/2 | H |
| ``blocks`` | Σ p_c(1 − p_c) φφᵀ | C F(F + 1)/2 | its diagonal blocks times C/(C − 1) |
| ``kronecker`` | G = Σ (diag p − ppᵀ), A = Σ φφᵀ | both triangles | G ⊗ A / n |
| ``bound`` | A | F(F + 1)/2 | ½(I − 11ᵀ/C) ⊗ A, an upper bound for all W |

The bound's trace is ½(C − 1) tr A, where that of H has 1 − Σ p² of each example instead: at most
1 − 1/C, and at most 2 (1 − p_y) ≤ −2 log p_y. What data determine is told by it scaled to that.

Blocks so scaled are right where all classes are equally probable, and H is at most twice as large
everywhere, so that Newton's steps with them go uphill. H has no curvature along the F directions in
which the weights of all classes move alike, and blocks have: of what they determine, the share
(C − 1)/C is H's, exactly where the blocks are equal (two classes, or equally probable ones).

Source: Böhning (1992) for the bound; Martens and Grosse (2015) for the Kronecker form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bfl.closing.base import Array, Sums

Form = Literal["full", "blocks", "kronecker", "bound"]

ROUNDED = 1e-4
"""Distance of honest sums from what they have to be: for each example, and of their size."""

WHOLE = 1e-2
"""Greatest distance of sums of whole numbers from whole ones."""

MOST_EXACT = 2000
"""The most weights whose full Hessian is sent and inverted."""


SEARCHED = (-4.0, 6.0)
"""The decimal logarithms of prior precisions that are searched."""


@dataclass(frozen=True)
class Curvature:
    """A negative Hessian as blocks on the diagonal, after a rotation of the classes.

    Attributes:
        blocks: (B, S, S) positive semi-definite blocks; B·S = C·F.
        rotation: (C, C) orthogonal; W becomes W times it.
        share: How much of the directions that the blocks determine the data determine.
        scale: By what the blocks are multiplied where they tell what data determine.
    """

    blocks: Array
    rotation: Array
    share: float = 1.0
    scale: float = 1.0

    def split(self, weights: Array) -> Array:
        """Return weights (F, C) as the blocks (B, S) see them."""
        return (weights @ self.rotation).T.reshape(self.blocks.shape[:2])

    def joined(self, blocks: Array) -> Array:
        """Return the weights (F, C) that ``split`` has taken apart."""
        return blocks.reshape(len(self.rotation), -1).T @ self.rotation.T


def shapes(form: Form, features: int, classes: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the sums of a form, for F features (the 1 among them), C classes."""
    triangle = features * (features + 1) // 2
    of_classes = classes * (classes + 1) // 2
    all_weights = features * classes
    by_form: Mapping[str, dict[str, tuple[int, ...]]] = {
        "full": {"hessian": (all_weights * (all_weights + 1) // 2,)},
        "blocks": {"by-class": (classes, triangle)},
        "kronecker": {"of-classes": (of_classes,), "of-features": (triangle,)},
        "bound": {"of-features": (triangle,)},
    }
    return by_form[form]


def measure(form: Form, probability: Array, features: Array) -> Sums:
    """Return the sums of a form.

    Args:
        probability: (N, C) the classes' probabilities.
        features: (N, F) features.
    """
    if form == "full":
        return {"hessian": packed(_hessian(probability, features))}
    if form == "blocks":
        share = probability * (1.0 - probability)
        return {"by-class": np.stack([packed(_moment(features, s)) for s in share.T])}
    found = {"of-features": packed(_moment(features, np.ones(len(features))))}
    if form == "kronecker":
        of_classes = np.diag(probability.sum(axis=0)) - probability.T @ probability
        found = {"of-classes": packed(of_classes), **found}
    return found


def lengths(form: Form, longest: float, classes: int) -> dict[str, float]:
    """Return the greatest L2 norms of what one example adds to the sums of a form.

    diag p − ppᵀ has eigenvalues up to ½ and a trace up to 1 − 1/C, and the norm of its diagonal,
    √Σ p²(1 − p)², is at most √(4/27): p(1 − p)² ≤ 4/27, and the p add up to 1. A triangle is no
    longer than its matrix.

    Args:
        longest: The longest features, the 1 among them.
        classes: The number C of classes.
    """
    of_classes = float(np.sqrt((1.0 - 1.0 / classes) / 2.0))
    by_name = {
        "hessian": of_classes * longest**2,
        "by-class": float(np.sqrt(4.0 / 27.0)) * longest**2,
        "of-classes": of_classes,
        "of-features": longest**2,
    }
    return {name: by_name[name] for name in shapes(form, 1, 1)}


def repaired(matrix: Array, deviation: float) -> Array:
    """Return a symmetric matrix whose eigenvalues are no smaller than what its noise makes.

    Noise of a standard deviation s on each entry of (S, S) moves eigenvalues by about 2s√S.
    """
    if not deviation:
        return matrix
    values, vectors = np.linalg.eigh(matrix)
    floored = np.maximum(values, 2.0 * deviation * np.sqrt(len(matrix)))
    return np.asarray((vectors * floored) @ vectors.T)


def curvature(
    form: Form,
    sums: Sums,
    examples: float,
    classes: int,
    deviation: Mapping[str, float] | None = None,
    likelihood: float = -math.inf,
) -> Curvature:
    """Return the curvature that sums over all examples describe.

    Args:
        sums: What ``measure`` gives, added up over clients.
        classes: The number C of classes.
        deviation: Standard deviations of the noise on each number of the sums, by name; by default
            there is none.
        likelihood: ℓ, as far as it is known.
    """
    identity, noise = np.eye(classes), deviation or {}

    def matrix(name: str, triangle: Array) -> Array:
        return repaired(unpacked(triangle), noise.get(name, 0.0))

    if form == "full":
        return Curvature(matrix("hessian", sums["hessian"])[None], identity)
    if form == "blocks":
        blocks = np.stack([matrix("by-class", each) for each in sums["by-class"]])
        share = (classes - 1) / classes
        return Curvature(blocks / share, identity, share)
    of_features = matrix("of-features", sums["of-features"])
    if form == "kronecker":
        of_classes = matrix("of-classes", sums["of-classes"]) / max(examples, 1.0)
        values, rotation = np.linalg.eigh(of_classes)
    else:
        values, rotation = np.linalg.eigh(0.5 * (identity - 1.0 / classes))
    scaled = np.maximum(values, 0.0)[:, None, None] * of_features
    if form == "kronecker":
        return Curvature(scaled, rotation)
    trace = min(1.0 - 1.0 / classes, -2.0 * likelihood / max(examples, 1.0))
    return Curvature(scaled, rotation, scale=2.0 * max(trace, 0.0) / (classes - 1))


def implausible(
    form: Form, sums: Sums, examples: int, squares: Array, wrong: float, classes: int
) -> str | None:
    """Return why the curvature of so many examples cannot be such; None if it may.

    It is positive semi-definite. No p (1 − p) is above 1/4, and those of an example add up to
    1 − Σ p², at most 1 − 1/C and at most 2 (1 − p_y).

    Args:
        sums: What ``measure`` gives, of a client.
        examples: How many examples it is of.
        squares: (F,) at most Σ φ² of each feature, the 1 among them.
        wrong: At most Σ 2 (1 − p_y).
        classes: The number C of classes.
    """
    slack = ROUNDED * examples
    triangles = sums["by-class"] if form == "blocks" else [sums[name] for name in sorted(sums)]
    diagonals = []
    for matrix in map(unpacked, triangles):
        rounding = slack + ROUNDED * max(np.abs(matrix).max(), 0.0)
        if np.linalg.eigvalsh(matrix)[0] < -rounding:
            return "a curvature below 0"
        diagonals.append(np.diag(matrix))
    of_labels = diagonals[0][:, None]  # Σ p (1 − p) by class and, but for Kronecker's, by feature
    if form in ("kronecker", "bound"):
        if np.abs(diagonals[-1][-1] - examples) > slack:
            return f"a curvature of {diagonals[-1][-1]:g} examples"
        of_labels = of_labels if form == "kronecker" else np.zeros((classes, 1))
    else:
        of_labels = np.reshape(diagonals, (classes, -1))
        most = (1.0 - 1.0 / classes) * squares
        if (of_labels.sum(axis=0) > most * (1.0 + ROUNDED) + slack).any():
            return "a curvature beyond that of its features"
    if of_labels[:, -1].max() > 0.25 * examples + slack:
        return "a curvature of more examples"
    if of_labels[:, -1].sum() > min(wrong, (1.0 - 1.0 / classes) * examples) + slack:
        return "a curvature that is too large for the log-likelihood"
    return None


def packed(matrix: Array) -> Array:
    """Return the upper triangle of a symmetric matrix (S, S) as a vector."""
    return np.asarray(matrix[np.triu_indices(len(matrix))])


def unpacked(triangle: Array) -> Array:
    """Return the symmetric matrix that ``packed`` has made a vector of."""
    side = int((np.sqrt(8 * triangle.size + 1) - 1) / 2)
    matrix = np.zeros((side, side))
    matrix[np.triu_indices(side)] = triangle
    return matrix + np.triu(matrix, 1).T


def _moment(features: Array, share: Array) -> Array:
    """Return Σ_n s_n φ_n φ_nᵀ (F, F)."""
    return (features * share[:, None]).T @ features


def _hessian(probability: Array, features: Array) -> Array:
    """Return H (C·F, C·F), classes first."""
    classes, width = probability.shape[1], features.shape[1]
    found = np.empty((classes, width, classes, width))
    for a in range(classes):
        for b in range(a + 1):
            share = probability[:, a] * ((a == b) - probability[:, b])
            found[a, :, b] = found[b, :, a] = _moment(features, share)
    return found.reshape(classes * width, classes * width)


@dataclass(frozen=True)
class Local:
    """The log-posterior of the last layer around some weights, by the curvature's eigenvectors.

    Attributes:
        likelihood: ℓ at the weights.
        vectors: (B, S, S) eigenvectors of the curvature's blocks.
        values: (B, S) their eigenvalues.
        slope: (B, S) the gradient of ℓ along them.
        away: (B, S) how far the weights are from the prior's mean along them.
        share: How much of these directions the data determine.
        scale: By what the eigenvalues are multiplied where they tell what data determine.
    """

    likelihood: float
    vectors: Array
    values: Array
    slope: Array
    away: Array
    share: float
    scale: float

    @classmethod
    def of(cls, found: Curvature, likelihood: float, gradient: Array, away: Array) -> Local:
        """Return it for a curvature, and ℓ, its gradient and W − M (F, C)."""
        values, vectors = np.linalg.eigh(found.blocks)

        def along(weights: Array) -> Array:
            turned = vectors.transpose(0, 2, 1) @ found.split(weights)[:, :, None]
            return np.asarray(turned[:, :, 0])

        sizes = np.maximum(values, 0.0)
        slope, apart = along(gradient), along(away)
        return cls(likelihood, vectors, sizes, slope, apart, found.share, found.scale)

    def step(self, precision: float) -> Array:
        """Return d (B, S), the step to the mode under a prior precision δ."""
        step: Array = (self.slope - precision * self.away) / (self.values + precision)
        return step

    def gain(self, precision: float) -> float:
        """Return by how much ``step`` raises the log-posterior, as its second order has it."""
        slope = self.slope - precision * self.away
        return float((slope**2 / (self.values + precision)).sum() / 2)

    def log_evidence(self, precision: float) -> float:
        """Return log Z(δ)."""
        step = self.step(precision)
        gained = self.slope * step - self.values * step**2 / 2
        occam = self.share * np.log(precision / (self.scale * self.values + precision))
        prior = precision * (self.away + step) ** 2 - occam
        return self.likelihood + float((gained - prior / 2).sum())

    def most_probable(self) -> tuple[float, float]:
        """Return the prior precision δ of the largest evidence, and the evidence's logarithm."""
        from scipy.optimize import brentq

        def slope(exponent: float) -> float:
            # Of log Z by log δ, twice: what data determine, and what δ expects of W − M.
            precision = 10.0**exponent
            values = self.scale * self.values
            determined = self.share * values / (values + precision)
            expected = precision * (self.away + self.step(precision)) ** 2
            return float((determined - expected).sum())

        # There may be several maxima: the best of a grid, then the root next to it.
        grid = np.linspace(*SEARCHED, 41)
        best = int(np.argmax([self.log_evidence(10.0 ** float(each)) for each in grid]))
        low, high = float(grid[max(0, best - 1)]), float(grid[min(len(grid) - 1, best + 1)])
        inside = slope(low) > 0 > slope(high)
        found = 10.0 ** (float(brentq(slope, low, high, xtol=1e-14)) if inside else grid[best])
        return float(found), self.log_evidence(float(found))
