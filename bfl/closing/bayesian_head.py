"""A Bayesian last layer over all clients' data, by Newton's method on sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field
from scipy.optimize import brentq

from bfl.closing import curvature as forms
from bfl.closing.base import FEATURE_BOUND, HEAD, Array, Closing, Examples, Known, Sums, closings
from bfl.evaluation.prediction.statistics import log_softmax

FACTOR, ROTATION = "head-factor", "head-rotation"
"""The posterior's scale, by blocks (B, S, S), and the rotation (C, C) of the classes before it."""

PRECISION, EVIDENCE = "head-prior-precision", "head-log-evidence"
BEST, LIKELIHOOD = "head-best", "head-log-likelihood"
"""The best weights so far, and their log-likelihood."""

SEARCHED = (-4.0, 6.0)
"""The decimal logarithms of prior precisions that are searched."""


@closings.register("bayesian-head")
class BayesianHead(Closing):
    """The last layer's Gaussian posterior over all clients' data, at its mode by Newton's method.

    With features φ̃ = (φ, 1) of the network at its posterior's mean and p = softmax(Wᵀφ̃), each
    client sends ℓ = Σ log p_y, g = Σ φ̃ (e_y − p)ᵀ and a form of the curvature H. The server picks
    the prior precision δ that makes the Laplace evidence largest,

        log Z(δ) = ℓ − δ‖W‖²/2 + (D/2) log δ − ½ log det(H + δI),

    steps W ← W + s (H + δI)⁻¹(g − δW), and in the last round has N(W, (H + δI)⁻¹). Predictions then
    are the mean over draws of W on features at the mean, whatever the weights before them are.

    Diagonal blocks of H bound it from above only twice over (H ≼ 2 diag blocks), which one step of
    two equally probable classes reaches. So s is (C − 1)/C there, and 1 otherwise. No step is
    longer than W. A quarter is left of one after which ℓ − δ‖W‖²/2 is lower, and the last round
    keeps the best weights.

    Reference: MacKay (1992), "The evidence framework applied to classification networks"; Daxberger
    et al. (2021), "Laplace redux", for last layers.
    """

    told: ClassVar[tuple[str, ...]] = (HEAD,)
    moves_head: ClassVar[bool] = True

    head_curvature: forms.Form = Field(
        "blocks", description="what of the last layer's curvature clients send in a closing round"
    )
    closing_rounds: int = Field(
        3, ge=1, le=1000, description="rounds of sums: one Newton step fewer, then the curvature"
    )

    @property
    def rounds(self) -> int:
        """``closing-rounds``."""
        return self.closing_rounds

    def problem(self, features: int, classes: int) -> str | None:
        """Return why the full Hessian is too large, if it is asked for and is."""
        size = (features + 1) * classes
        if self.head_curvature != "full" or size <= forms.MOST_EXACT:
            return None
        return (
            f"head-curvature is 'full' and the last layer has {size} weights; allowed: up to "
            f"{forms.MOST_EXACT}, or head-curvature 'blocks' or 'kronecker'"
        )

    def shapes(self, features: int, classes: int) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of n, ℓ, g and the curvature."""
        width = features + 1
        return {
            "examples": (),
            "log-likelihood": (),
            "gradient": (width, classes),
            **forms.shapes(self.head_curvature, width, classes),
        }

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return n, ℓ, g and the curvature at the weights that are told."""
        phi, labels = examples.features, examples.labels
        log_p = log_softmax(phi @ known[HEAD])
        probability = np.exp(log_p)
        of_labels = log_p[np.arange(len(labels)), labels]
        residual = -probability
        residual[np.arange(len(labels)), labels] += 1.0
        return {
            "examples": np.float64(len(labels)).reshape(()),
            "log-likelihood": np.maximum(of_labels, -(FEATURE_BOUND**2)).sum().reshape(()),
            "gradient": phi.T @ residual,
            **forms.measure(self.head_curvature, probability, phi),
        }

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the weights after one more step, or, in the last round, their posterior."""
        # What all classes have alike changes no prediction, and is 0 at the mode.
        head = known[HEAD] - np.mean(known[HEAD], axis=1, keepdims=True)
        likelihood = float(sums["log-likelihood"])
        found = forms.curvature(self.head_curvature, sums, float(sums["examples"]), head.shape[1])
        values, vectors = np.linalg.eigh(found.blocks)
        values = np.maximum(values, 0.0)
        precision, evidence = most_probable(likelihood, head, values)
        number = int(known.get(f"rounds.{self.name}", 0)) + 1
        if BEST in known:
            best = np.asarray(known[BEST], np.float64)
            was = float(known[LIKELIHOOD]) - precision * np.sum(best**2) / 2
            if not likelihood - precision * np.sum(head**2) / 2 >= was:
                # What is known of the best weights stays; in the last round they are the mode.
                return {**known, HEAD: best if number == self.rounds else (head + 3 * best) / 4}
        factor = vectors / np.sqrt(values + precision)[:, None, :]
        after = {
            **known,
            BEST: head,
            LIKELIHOOD: np.array(likelihood),
            PRECISION: np.array(precision),
            EVIDENCE: np.array(evidence),
            FACTOR: factor,
            ROTATION: found.rotation,
        }
        if number == self.rounds:
            return after
        slope = found.split(np.asarray(sums["gradient"], np.float64) - precision * head)
        step = factor @ (factor.transpose(0, 2, 1) @ slope[:, :, None])
        classes = head.shape[1]
        share = (classes - 1) / classes if self.head_curvature == "blocks" else 1.0
        shift = share * found.joined(step)
        within = float(np.linalg.norm(head)) / max(float(np.linalg.norm(shift)), 1e-300)
        return {**after, HEAD: head + min(1.0, within) * shift}


def most_probable(likelihood: float, head: Array, values: Array) -> tuple[float, float]:
    """Return the prior precision δ of the largest Laplace evidence, and its logarithm.

    Args:
        likelihood: The log-likelihood ℓ at the weights.
        head: W (F, C).
        values: (B, S) the curvature's eigenvalues.
    """
    square, size = float(np.sum(head**2)), values.size

    def log_evidence(exponent: float) -> float:
        precision = 10.0**exponent
        volume = size * math.log(precision) - float(np.log(values + precision).sum())
        return float(likelihood - precision * square / 2 + volume / 2)

    def slope(exponent: float) -> float:
        # Of log Z by log δ, twice: the weights that data determine, and what δ expects of W.
        precision = 10.0**exponent
        return float(np.sum(values / (values + precision)) - precision * square)

    # There may be several maxima: the best of a grid, then the root next to it.
    grid = np.linspace(*SEARCHED, 41)
    best = int(np.argmax([log_evidence(float(each)) for each in grid]))
    low, high = float(grid[max(0, best - 1)]), float(grid[min(len(grid) - 1, best + 1)])
    inside = slope(low) > 0 > slope(high)
    found = float(brentq(slope, low, high, xtol=1e-14)) if inside else float(grid[best])
    return 10.0**found, log_evidence(found)


def draws(known: Known, samples: int, generator: np.random.Generator) -> Iterator[Array]:
    """Yield draws of the last layer's weights (F + 1, C); its mode alone where it has no scale.

    Args:
        known: What closings have found.
        samples: How many draws.
        generator: What they are drawn with.
    """
    head = np.asarray(known[HEAD], np.float64)
    if FACTOR not in known:
        yield head
        return
    found = forms.Curvature(known[FACTOR], known[ROTATION])
    for _ in range(samples):
        normal = generator.standard_normal(found.blocks.shape[:2])
        yield head + found.joined(found.blocks @ normal[:, :, None])
