"""The curvature of a linear classifier's log-likelihood, in forms of different size.

The log-likelihood of weights W (F × C) is ℓ(W) = Σ_n log p_n[y_n] with p_n = softmax(Wᵀ φ_n). Its
negative Hessian is H = Σ_n (diag p − p pᵀ) ⊗ φ φᵀ. Every form gives it as blocks on the diagonal,
after a rotation of the classes: one for ``full``, one a class for the others.

| form | what clients send | numbers | H becomes |
| --- | --- | --- | --- |
| ``full`` | H | CF(CF + 1)/2 | H |
| ``blocks`` | Σ p_c(1 − p_c) φφᵀ | C F(F + 1)/2 | its diagonal blocks times C/(C − 1) |
| ``kronecker`` | G = Σ (diag p − ppᵀ), A = Σ φφᵀ | both triangles | G ⊗ A / n |

Blocks so scaled are right where all classes are equally probable, and H is at most twice as large
everywhere, so that a Newton step with them goes uphill.

Source: Böhning (1992) for multinomial regression; Martens and Grosse (2015) for the Kronecker form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bfl.closing.base import ROUNDED, Array, Sums

Form = Literal["full", "blocks", "kronecker"]

MOST_EXACT = 2000
"""The most weights whose full Hessian is sent and inverted."""


@dataclass(frozen=True)
class Curvature:
    """A negative Hessian as blocks on the diagonal, after a rotation of the classes.

    Attributes:
        blocks: (B, S, S) positive semi-definite blocks; B·S = C·F.
        rotation: (C, C) orthogonal; W becomes W times it.
    """

    blocks: Array
    rotation: Array

    def split(self, weights: Array) -> Array:
        """Return weights (F, C) as the blocks (B, S) see them."""
        return (weights @ self.rotation).T.reshape(self.blocks.shape[:2])

    def joined(self, blocks: Array) -> Array:
        """Return the weights (F, C) that ``split`` has taken apart."""
        return blocks.reshape(len(self.rotation), -1).T @ self.rotation.T


def shapes(form: Form, features: int, classes: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the sums of a form, for F features (the 1 among them), C classes."""
    triangle = features * (features + 1) // 2
    weights = features * classes
    by_form: Mapping[str, dict[str, tuple[int, ...]]] = {
        "full": {"hessian": (weights * (weights + 1) // 2,)},
        "blocks": {"by-class": (classes, triangle)},
        "kronecker": {
            "of-classes": (classes * (classes + 1) // 2,),
            "of-features": (triangle,),
        },
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
        shares = probability * (1.0 - probability)
        return {"by-class": np.stack([packed(_moment(features, share)) for share in shares.T])}
    of_classes = np.diag(probability.sum(axis=0)) - probability.T @ probability
    of_features = _moment(features, np.ones(len(features)))
    return {"of-classes": packed(of_classes), "of-features": packed(of_features)}


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


def curvature(
    form: Form,
    sums: Sums,
    examples: float,
    classes: int,
    deviation: Mapping[str, float] | None = None,
) -> Curvature:
    """Return the curvature that sums over all examples describe.

    Args:
        sums: What ``measure`` gives, added up over clients.
        classes: The number C of classes.
        deviation: Standard deviations of the noise on each number of the sums, by name; by default
            there is none.
    """
    identity, noise = np.eye(classes), deviation or {}

    def matrix(name: str, triangle: Array) -> Array:
        return _repaired(unpacked(triangle), noise.get(name, 0.0))

    if form == "full":
        return Curvature(matrix("hessian", sums["hessian"])[None], identity)
    if form == "blocks":
        blocks = np.stack([matrix("by-class", each) for each in sums["by-class"]])
        return Curvature(blocks * classes / (classes - 1), identity)
    of_classes = matrix("of-classes", sums["of-classes"]) / max(examples, 1.0)
    values, rotation = np.linalg.eigh(of_classes)
    of_features = matrix("of-features", sums["of-features"])
    return Curvature(np.maximum(values, 0.0)[:, None, None] * of_features, rotation)


def find_problem(form: Form, sums: Sums, examples: int, classes: int, longest: float) -> str | None:
    """Return why the curvature of so many examples cannot be such; None if it may.

    It is positive semi-definite. No p (1 − p) is above 1/4, and those of an example add up to
    1 − Σ p², at most 1 − 1/C.

    Args:
        sums: What ``measure`` gives, of a client.
        examples: How many examples it is of.
        classes: The number C of classes.
        longest: The longest features of an example, the 1 among them.
    """
    slack = ROUNDED * examples
    triangles = sums["by-class"] if form == "blocks" else [sums[name] for name in sorted(sums)]
    diagonals = []
    for matrix in map(unpacked, triangles):
        rounding = slack + ROUNDED * max(np.abs(matrix).max(), 0.0)
        if np.linalg.eigvalsh(matrix)[0] < -rounding:
            return "a curvature below 0"
        diagonals.append(np.diag(matrix))
    if form == "kronecker":
        of_labels, of_features = diagonals
        if np.abs(of_features[-1] - examples) > slack:
            return f"a curvature of {of_features[-1]:g} examples"
        trace = of_features.sum()
    else:
        of_labels = np.reshape(diagonals, (classes, -1))[:, -1]
        trace = np.sum(diagonals) / (1.0 - 1.0 / classes)
    if trace > examples * longest**2 * (1.0 + ROUNDED) + slack:
        return "a curvature beyond that of its features"
    if of_labels.max() > 0.25 * examples + slack:
        return "a curvature of more examples"
    if of_labels.sum() > (1.0 - 1.0 / classes) * examples + slack:
        return "a curvature of more examples"
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


def _repaired(matrix: Array, deviation: float) -> Array:
    """Return a symmetric matrix whose eigenvalues are no smaller than what its noise makes.

    Noise of a standard deviation s on each entry of (S, S) moves eigenvalues by about 2s√S.
    """
    if not deviation:
        return matrix
    values, vectors = np.linalg.eigh(matrix)
    floored = np.maximum(values, 2.0 * deviation * np.sqrt(len(matrix)))
    return np.asarray((vectors * floored) @ vectors.T)


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
