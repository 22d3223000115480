"""A Bayesian last layer over all clients' data, by Newton's method on sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bfl.closing import curvature as forms
from bfl.closing.base import (
    DEVIATION,
    ENDED,
    FEATURE_BOUND,
    HEAD,
    LONGEST,
    SUMMED,
    Array,
    Closing,
    Examples,
    Known,
    Sums,
    closings,
)
from bfl.evaluation.prediction.statistics import log_softmax

FACTOR, ROTATION = "head-factor", "head-rotation"
"""The posterior's scale, by blocks (B, S, S), and the rotation (C, C) of the classes before it."""

PRECISION, EVIDENCE = "head-prior-precision", "head-log-evidence"
PRIOR_MEAN = "head-prior-mean"
BEST, WHOSE = "head-best", "head-best-clients"
"""The best weights so far, and n and the clients that ℓ and g at them are of."""

LIKELIHOOD, SLOPE = "head-log-likelihood", "head-best-gradient"
"""ℓ and g at the best weights."""

SHIFT_GAP, LIKELIHOOD_SHIFTED = "head-shift-gap", "log-likelihood-shifted"
"""By how many nats an example ℓ of shifted images is lower, and ℓ of these, in the first round."""

BY_HEART = 0.19
"""Gap in nats an example above which training knows its images by heart.

Our choice, from the networks of docs/results/closing.md, "Shifted images".
"""

SIDE, MOST_SHIFTED = 28, 2
"""The side of images of which one pixel is a small shift, and the most pixels."""

PROBIT = "head-probit"
"""The array that is there where predictions are the probit approximation's."""

FARTHEST, FARTHEST_NOISED = 4.0, 0.5
"""The longest step, in lengths of the weights that it begins at, without and with noise on sums."""

LEAST_LENGTH = 1.0
"""The length that shorter weights count as: from 0 there would be no step."""


@closings.register("bayesian-head")
class BayesianHead(Closing):
    """The last layer's Gaussian posterior over all clients' data, at its mode by Newton's method.

    With features φ̃ = (φ, 1) of the network at its posterior's mean and p = softmax(Wᵀφ̃), each
    client sends ℓ = Σ log p_y, g = Σ φ̃ (e_y − p)ᵀ and a form of the curvature H. The prior is
    N(M, δ⁻¹I) around the pooled network's own last layer M, or around 0 (``head-prior``). The
    server picks the δ of the largest Laplace evidence at the current W,

        log Z(δ) = ℓ + gᵀd − dᵀHd/2 − δ‖W − M + d‖²/2 + ½ log det(δ(H + δI)⁻¹),

    with d = (H + δI)⁻¹(g − δ(W − M)), steps W ← W + d, and in the last round has
    N(W, (H + δI)⁻¹). Predictions are the mean over draws of W on features at the mean, whatever the
    weights before them are, or its probit approximation (``head-predictions``). Where M explains
    the data already, δ grows and the layer stays M.

    No step is longer than 4 max(‖W‖, 1). A quarter is left of one after which ℓ − δ‖W − M‖²/2 is
    lower, and the last round keeps the best weights; only sums of the same clients are compared. ℓ
    is concave, so that a step gains between gᵀd at its end and gᵀd at its begin: what ℓ says beyond
    counts as that, and no client holds up the steps by its ℓ alone. A round is the last as soon as
    the next step promises a gain (g − δ(W − M))ᵀd/2 below ``closing-tolerance`` nats an example.
    Under privacy's noise no step is longer than ½ max(‖W‖, 1), and none is taken back, as noise on
    ℓ would decide it: clients send 0 for ℓ, and log Z is not told.

    After long training W fits images that the features know by heart, and predictions of others are
    too certain. With ``head-shift`` each client measures on copies of its images, each shifted by
    up to so many pixels, the same copies in every round. With ``"auto"``, one pixel for each 28
    of an image's side, the first round decides: clients send ℓ of either, and where that of the
    copies is lower by more than 0.19 nats an example, the rounds begin anew on copies. There are
    none under noise, which hides ℓ, nor where at most two rounds are made. This is our own remedy.

    Reference: MacKay (1992), "The evidence framework applied to classification networks"; Daxberger
    et al. (2021), "Laplace redux", for last layers.
    """

    told: ClassVar[tuple[str, ...]] = (HEAD, SHIFT_GAP, LONGEST)
    moves_head: ClassVar[bool] = True

    head_curvature: forms.Form = Field(
        "blocks", description="what of the last layer's curvature clients send in a closing round"
    )
    head_prior: Literal["pooled", "zero"] = Field(
        "pooled", description="the mean of the last layer's prior: the pooled network's, or 0"
    )
    head_shift: Literal["auto", 0, 1, 2] = Field(
        "auto",
        description="the most pixels by which each image is shifted, at random in both directions, "
        "for the last layer's sums: a network knows its training images by heart, and these less; "
        "auto: one for each 28 of an image's side, where shifted images are predicted much worse",
    )
    head_predictions: Literal["draws", "probit"] = Field(
        "draws", description="mean over draws of the last layer, or its approximation without any"
    )
    closing_rounds: int = Field(
        12, ge=1, le=1000, description="most rounds of sums, with a Newton step between any two"
    )
    closing_tolerance: float = Field(
        1e-3,
        ge=0.0,
        description="gain of the next Newton step, in nats an example, below which none is made; "
        "0: closing-rounds are made",
    )

    @property
    def rounds(self) -> int:
        """``closing-rounds``, the most that it takes."""
        return self.closing_rounds

    def shift(self, known: Known, side: int) -> int:
        """Return ``head-shift``, or what "auto" needs in this round."""
        if self.head_shift != "auto":
            return self.head_shift
        needed = self._decides(known) or self._on_copies(known)
        return min(side // SIDE, MOST_SHIFTED) if needed else 0

    def _decides(self, known: Known) -> bool:
        """Return whether this round decides on the copies."""
        first = not known.get(f"rounds.{self.name}")
        return first and self.rounds > 2 and LONGEST not in known

    def _on_copies(self, known: Known) -> bool:
        """Return whether sums are of the copies, where there are some."""
        return self.head_shift != "auto" or float(known.get(SHIFT_GAP, 0.0)) > BY_HEART

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
        """Return the shapes of n, ℓ, g and the curvature, and that of ℓ of shifted images."""
        width = features + 1
        return {
            "examples": (),
            "log-likelihood": (),
            "gradient": (width, classes),
            **forms.shapes(self.head_curvature, width, classes),
            **({LIKELIHOOD_SHIFTED: ()} if self.head_shift == "auto" else {}),
        }

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return n, ℓ, g and the curvature at the weights that are told; for ℓ 0 under noise."""
        copies = examples.shifted
        seen = copies if copies and self._on_copies(known) else examples
        phi, labels = seen.features, seen.labels
        likelihood, probability = _predicted(known, seen)
        of_copies = _predicted(known, copies)[0] if copies and seen is examples else 0.0
        residual = -probability
        residual[np.arange(len(labels)), labels] += 1.0
        return {
            "examples": np.array(float(len(labels))),
            "log-likelihood": np.array(likelihood),
            "gradient": phi.T @ residual,
            **forms.measure(self.head_curvature, probability, phi),
            LIKELIHOOD_SHIFTED: np.array(of_copies),
        }

    def lengths(self, longest: float, classes: int) -> Mapping[str, float]:
        """Return those of the gradient, ‖φ̃‖ ‖e_y − p‖ ≤ √2 ‖φ̃‖, and of the curvature.

        How many examples a client trains on is known, and ℓ is not sent.
        """
        with_one = math.hypot(longest, 1.0)
        return {
            "examples": 0.0,
            "log-likelihood": 0.0,
            LIKELIHOOD_SHIFTED: 0.0,
            "gradient": math.sqrt(2.0) * with_one,
            **forms.lengths(self.head_curvature, with_one, classes),
        }

    def implausible(
        self,
        sums: Sums,
        examples: int,
        *,
        noised: bool = False,
        beside: Mapping[str, Sums] | None = None,
    ) -> str | None:
        """Return what of n, ℓ, the gradient or the curvature so many examples cannot have.

        Residuals r = e_y − p of an example add up to 0, their absolute values to 2 (1 − p_y), and
        their squares to no more; 1 − p_y is at most 1 and at most −log p_y. So ‖Σ φ r‖² is at most
        Σ φ² Σ 2 min(1, −log p_y) for each feature, by Cauchy and Schwarz.
        """
        if abs(float(sums["examples"]) - examples) > forms.WHOLE:
            return f"they are of {float(sums['examples']):g}"
        if noised:
            return None
        if (
            max(sums["log-likelihood"], sums.get(LIKELIHOOD_SHIFTED, 0.0))
            > forms.ROUNDED * examples
        ):
            return "a log-likelihood above 0"
        gradient, slack = sums["gradient"], forms.ROUNDED * examples
        sizes, off = np.abs(gradient).sum(axis=1), np.abs(gradient.sum(axis=1))
        if (off > forms.ROUNDED * sizes + slack).any():
            return "a gradient of no residuals"
        wrong = 2.0 * min(examples, -float(sums["log-likelihood"])) + slack
        squares = self._squares(sums, examples, beside or {})
        most = squares * wrong * (1.0 + forms.ROUNDED) + slack**2
        if sizes[-1] > wrong or ((gradient**2).sum(axis=1) > most).any():
            return "a gradient that is too large for the log-likelihood or the features"
        own = {name: sums[name] for name in forms.shapes(self.head_curvature, 1, 1)}
        classes = gradient.shape[1]
        return forms.implausible(self.head_curvature, own, examples, squares, wrong, classes)

    def _squares(self, sums: Sums, examples: int, beside: Mapping[str, Sums]) -> Array:
        """Return at most Σ φ² of each feature, the 1 among them, as far as sums tell it."""
        most = np.full(len(sums["gradient"]), examples * FEATURE_BOUND**2)
        density = beside.get("feature-density", {})
        if "of-features" in sums:
            most = np.maximum(np.diag(forms.unpacked(sums["of-features"])), 0.0)
        # Both are in one message in the first round alone, where "auto" has the images as they are.
        elif "second" in density and self.head_shift in ("auto", 0):
            by_class = [np.diag(forms.unpacked(each)) for each in density["second"]]
            # Examples of classes that are left out have what any example may have.
            left_out = max(examples - float(density["counts"].sum()), 0.0)
            most[:-1] = np.maximum(np.sum(by_class, axis=0), 0.0) + left_out * FEATURE_BOUND**2
        most[-1] = examples
        return most + forms.ROUNDED * examples

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return the weights after one more step, or, in the last round, their posterior."""
        # What all classes have alike changes no prediction, and is 0 at the mode.
        head = known[HEAD] - np.mean(known[HEAD], axis=1, keepdims=True)
        own = known.get(PRIOR_MEAN, head if self.head_prior == "pooled" else np.zeros_like(head))
        number = int(known.get(f"rounds.{self.name}", 0)) + 1
        n, classes = float(sums["examples"]), head.shape[1]
        told = -math.inf if DEVIATION in known else float(sums["log-likelihood"])
        copies = float(sums.get(LIKELIHOOD_SHIFTED, 0.0))
        if self._decides(known) and copies:
            known = {**known, SHIFT_GAP: np.array((told - copies) / n)}
            if self._on_copies(known):
                return known
        noise = _noise(self, known, classes)
        found = forms.curvature(self.head_curvature, sums, n, classes, noise, told)
        gradient = sums["gradient"]
        if noise["gradient"]:  # residuals add up to 0 over classes, and their noise does not
            gradient = gradient - np.mean(gradient, axis=1, keepdims=True)
        local = forms.Local.of(found, float(sums["log-likelihood"]), gradient, head - own)
        precision, evidence = local.most_probable()
        whose = np.append(np.rint(n), known.get(SUMMED, ()))
        # ℓ over other examples is another function, and under noise there is none.
        if SLOPE in known and np.array_equal(known.get(WHOSE, ()), whose):
            best = np.asarray(known[BEST], np.float64)
            # As ℓ is concave, its gain lies between those of its slopes at either end.
            least, most = (float(np.sum(g * (head - best))) for g in (gradient, known[SLOPE]))
            gained = max(least, min(most, local.likelihood - float(known[LIKELIHOOD])))
            lost = precision * (np.sum((head - own) ** 2) - np.sum((best - own) ** 2)) / 2
            if not gained >= lost:
                # What is known of the best weights stays; in the last round they are the mode.
                return {**known, HEAD: best if number == self.rounds else (head + 3 * best) / 4}
        exact = {
            LIKELIHOOD: np.array(local.likelihood),
            EVIDENCE: np.array(evidence),
            SLOPE: gradient,
        }
        after = {
            **known,
            **({} if DEVIATION in known else exact),
            **({PROBIT: np.array(True)} if self.head_predictions == "probit" else {}),
            PRIOR_MEAN: own,
            BEST: head,
            WHOSE: whose,
            PRECISION: np.array(precision),
            FACTOR: local.vectors / np.sqrt(local.values + precision)[:, None, :],
            ROTATION: found.rotation,
        }
        still = local.gain(precision) < self.closing_tolerance * n
        if still or number == self.rounds:
            return {**after, HEAD: head, f"{ENDED}{self.name}": np.array(True)}
        step = found.joined((local.vectors @ local.step(precision)[:, :, None])[:, :, 0])
        farthest = FARTHEST_NOISED if DEVIATION in known else FARTHEST
        longest = farthest * max(float(np.linalg.norm(head)), LEAST_LENGTH)
        within = longest / max(float(np.linalg.norm(step)), 1e-300)
        return {**after, HEAD: head + min(1.0, within) * step}


def _predicted(known: Known, examples: Examples) -> tuple[float, Array]:
    """Return ℓ, which is 0 under noise, and the probabilities (N, C)."""
    log_p = log_softmax(examples.features @ known[HEAD])
    of_labels = log_p[np.arange(len(log_p)), examples.labels]
    likelihood = 0.0 if examples.noised else np.maximum(of_labels, -(FEATURE_BOUND**2)).sum()
    return float(likelihood), np.exp(log_p)


def _noise(closing: Closing, known: Known, classes: int) -> Mapping[str, float]:
    """Return the standard deviations of the noise on each number of the sums, by name."""
    deviation = float(known.get(DEVIATION, 0.0))
    lengths = closing.lengths(float(known.get(LONGEST, FEATURE_BOUND)), classes) or {}
    return {name: deviation * length for name, length in lengths.items()}


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
        normal = generator.standard_normal((*found.blocks.shape[:2], 1))
        yield head + found.joined((found.blocks @ normal)[:, :, 0])


def probit_logits(known: Known, features: Array, temperature: float) -> Array:
    """Return logits (N, C) whose softmax approximates the mean over all draws, without any.

    They are z_c / √(T² + π/8 v_c), with z_c the mean of the logit of class c. v_c is C/(C − 1)
    times the variance of its distance from the mean logit: no softmax sees what all have alike.

    Args:
        known: What closings have found.
        features: (N, F + 1) features.
        temperature: T.

    Reference: MacKay (1992) for two classes; Daxberger et al. (2021) for more.
    """
    head = np.asarray(known[HEAD], np.float64)
    classes, apart = head.shape[1], known[ROTATION]
    of_blocks = known[FACTOR].reshape(classes, len(head), -1)
    if len(known[FACTOR]) == 1:
        of_blocks = of_blocks - np.mean(of_blocks, axis=0)
    else:
        apart = apart - np.mean(apart, axis=0)
    spread = np.stack([((features @ each) ** 2).sum(axis=1) for each in of_blocks], axis=1)
    variance = spread @ (apart**2).T * classes / (classes - 1)
    return np.asarray(features @ head / np.sqrt(temperature**2 + np.pi / 8 * variance))
