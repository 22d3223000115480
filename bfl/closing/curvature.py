"""The curvature of a linear classifier's log-likelihood, in two forms of different size.

The log-likelihood of weights W (F × C) is ℓ(W) = Σ_n log p_n[y_n] with p_n = softmax(Wᵀ φ_n). Its
negative Hessian is H = Σ_n (diag p − p pᵀ) ⊗ φ φᵀ, classes first. Both forms give it as blocks on
the diagonal (B, S, S), B·S = C·F: one for ``full``, one a class for ``blocks``.

| form | what clients send | numbers | H becomes |
| --- | --- | --- | --- |
| ``full`` | H | CF(CF + 1)/2 | H |
| ``blocks`` | Σ p_c(1 − p_c) φφᵀ | C F(F + 1)/2 | its diagonal blocks times C/(C − 1) |

Blocks so scaled are right where all classes are equally probable, and H is at most twice as large
everywhere, so that a Newton step with them goes uphill.

Source: Böhning (1992), "Multinomial logistic regression algorithm".
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from bfl.closing.base import Array

Form = Literal["full", "blocks"]


def shape(form: Form, features: int, classes: int) -> tuple[int, int]:
    """Return the shape of what clients send: triangles, one of each block.

    Args:
        features: F, the 1 for the biases among them.
        classes: C.
    """
    blocks, side = (1, features * classes) if form == "full" else (classes, features)
    return blocks, side * (side + 1) // 2


def measure(form: Form, probability: Array, features: Array) -> Array:
    """Return the triangles of a form, from probabilities (N, C) and features (N, F)."""
    if form == "blocks":
        shares = probability * (1.0 - probability)
        return np.stack([packed((features * share[:, None]).T @ features) for share in shares.T])
    classes, width = probability.shape[1], features.shape[1]
    hessian = np.empty((classes, width, classes, width))
    for a in range(classes):
        for b in range(a + 1):
            share = probability[:, a] * ((a == b) - probability[:, b])
            hessian[a, :, b] = hessian[b, :, a] = (features * share[:, None]).T @ features
    return packed(hessian.reshape(classes * width, classes * width))[None]


def greatest_length(form: Form, longest: float, classes: int) -> float:
    """Return the greatest L2 norm of what one example adds, for features up to a length.

    diag p − ppᵀ has eigenvalues up to ½ and a trace up to 1 − 1/C, and the norm of its diagonal,
    √Σ p²(1 − p)², is at most √(4/27): p(1 − p)² ≤ 4/27, and the p add up to 1. A triangle is no
    longer than its matrix.
    """
    square = (1.0 - 1.0 / classes) / 2.0 if form == "full" else 4.0 / 27.0
    return float(np.sqrt(square)) * longest**2


def blocks_of(form: Form, triangles: Array, classes: int, deviation: float = 0.0) -> Array:
    """Return the blocks (B, S, S) that the triangles of all examples describe.

    Args:
        triangles: What ``measure`` gives, added up over clients.
        classes: The number C of classes.
        deviation: The standard deviation of the noise on each number.
    """
    blocks = np.stack([_repaired(unpacked(each), deviation) for each in triangles])
    return blocks if form == "full" else blocks * classes / (classes - 1)


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
