"""Objectives: sums of terms that local training makes small, traced once for all rounds."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from bfl.data.datasets.encoding import LEAST_NOISE
from bfl.federation.parts import Arrays, TwoSidedPart
from bfl.posteriors import Manifest, Posterior
from bfl.registry import Registry

if TYPE_CHECKING:
    from bfl.learning.networks.network import Network


@dataclass(frozen=True)
class SoftLabels:
    """Another network's logits (B, classes), with which a step compares besides the labels.

    Attributes:
        share: What they count of the loss, in [0, 1]; the labels have the rest.
    """

    logits: Any
    share: float

    def divergence(self, logits: Any) -> Any:
        """Return KL[softmax(theirs) ‖ softmax(logits)] of each example, (B,)."""
        from bfl.keras import tf

        theirs = tf.nn.log_softmax(tf.stop_gradient(self.logits))
        ours = tf.nn.log_softmax(logits)
        return tf.reduce_sum(tf.exp(theirs) * (theirs - ours), axis=-1)


@dataclass(frozen=True)
class Step:
    """Training step as the terms see it; all but the network are tensors of the graph.

    Attributes:
        logits: (B, classes), float32.
        labels: (B,), int32 classes or float32 numbers.
        weights: (B,), 1 for the batch's examples and 0 for those that only fill it up.
    """

    network: Network
    logits: Any
    labels: Any
    weights: Any
    soft_labels: SoftLabels | None = None

    @cached_property
    def loss(self) -> Any:
        """−log p(y | x, θ) over the batch; of soft labels' share s, 1 − s of it and s of theirs."""
        from bfl.keras import tf

        soft = self.soft_labels
        if soft is None:
            return self.negative_log_likelihood
        divergence = tf.reduce_sum(soft.divergence(self.logits) * self.weights)
        return (1.0 - soft.share) * self.negative_log_likelihood + soft.share * divergence

    @cached_property
    def negative_log_likelihood(self) -> Any:
        """−log p(y | x, θ), summed over the batch's examples, for the θ that were drawn.

        Labels that are numbers have Gaussian noise: of the two outputs one is its mean, the other ρ
        of its variance softplus(ρ) + 1e-6.
        """
        from bfl.keras import tf

        if self.labels.dtype.is_floating:
            mean, rho = tf.unstack(self.logits, axis=-1)
            variance = tf.nn.softplus(rho) + LEAST_NOISE
            squares = (self.labels - mean) ** 2 / variance
            each = 0.5 * (tf.math.log(2 * math.pi * variance) + squares)
        else:
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(self.labels, self.logits)
        return tf.reduce_sum(each * self.weights)

    @cached_property
    def divergence(self) -> Any:
        """KL[q ‖ p] in nats; see ``Network.divergence``."""
        return self.network.divergence()


@dataclass(frozen=True)
class Value:
    """A term's value over all N examples, estimated from a batch: Σ_n ℓ_n + R.

    A step goes along the gradient of (Σ over the batch of ℓ_n) / B + R / N, the objective per
    example.

    """

    summed: Any = None  # Σ ℓ_n over the batch's examples; None for a term that sees none
    shared: Any = None  # R


class Term(TwoSidedPart):
    """A summand of what a client makes small, per example and in nats.

    An objective is a chain of terms. What changes from task to task comes in as ``inputs``, which
    a trainer holds in variables, so that no client and no round traces the step anew.
    """

    @property
    def active(self) -> bool:
        """True if it adds anything; if not, no step computes it."""
        return True

    def inputs(self, manifest: Manifest, received: Posterior) -> Arrays:
        """Return what a task gives the term: arrays of the same names and shapes for all tasks."""
        return {}

    @abstractmethod
    def value(self, step: Step, inputs: Mapping[str, Any], examples: Any) -> Value:
        """Return the term's value in a step of a client with N examples, inside the graph."""


objectives: Registry[Term] = Registry("objective", "bfl.learning.objectives")


@objectives.register("elbo", aliases=("evidence-lower-bound",))
class EvidenceLowerBound(Term):
    """The negative evidence lower bound of the client's data.

    Σ_n −E_q[log p(y_n | x_n, θ)] + KL[q ‖ p].

    The divergence counts once over the client's own N examples. Point weights have none: what is
    left is the cross-entropy.

    Source: Fischer et al. (2024), Eq. 6.
    """

    def has(self) -> frozenset[str]:
        """Return that it is the bound."""
        return super().has() | {"evidence-lower-bound"}

    def value(self, step: Step, inputs: Mapping[str, Any], examples: Any) -> Value:
        """Return the batch's negative log-likelihood, or what stands for it, and the divergence."""
        return Value(step.loss, step.divergence)


WEIGHTS = ("/kernel", "/scale")  # ends of names of tensors that PyTorch calls weights


@objectives.register("proximal")
class Proximal(Term):
    """Holds a client near what it has received: a distance times ``proximal-mu`` = µ.

    - Point values that training moves by their gradient: µ/2 ‖w − w_received‖² besides the mean
      loss per example, as in the paper. Moving statistics are not held.
    - Gaussians: µ KL[q ‖ q_received] besides the sum of the losses, so µ KL / N per example: µ says
      how often the received posterior counts where the prior counts once. For a mean it is the
      paper's term with µ / (N σ_received²) in place of µ: certain weights are held more firmly.

    With ``proximal-distance`` = "norms" points have µ/2 Σ_t ‖w_t − w_t,received‖ instead, over the
    kernels and normalisation's scales w_t one by one; biases and offsets are not held.

    Source: Li et al. (2020), "Federated optimization in heterogeneous networks", Eq. 2, for points;
    FedBE's published code, ``SWAGLocalUpdate.reg_loss``, for norms.
    """

    always_excludes: ClassVar[frozenset[str]] = frozenset({"fitted-variances"})

    proximal_mu: float = Field(0.01, ge=0.0, le=1e6)
    """how firmly a client is held near what it has received"""
    proximal_distance: Literal["squared", "norms"] = "squared"
    """what of points' distance from what was received is made small: its square, or the norms of
    kernels and normalisation's scales, as in FedBE's code"""

    @property
    def active(self) -> bool:
        """True if µ is not 0."""
        return self.proximal_mu > 0

    def requires(self) -> frozenset[str]:
        """Return that variances are received, unless nothing is computed."""
        return frozenset({"sent-variances"}) if self.active else frozenset()

    def inputs(self, manifest: Manifest, received: Posterior) -> Arrays:
        """Return the received Gaussians, and the received points that training moves."""
        return {
            "mean": received.mean,
            "scale": np.sqrt(received.variance),
            "point": received.point[manifest.trainable_points],
        }

    def value(self, step: Step, inputs: Mapping[str, Any], examples: Any) -> Value:
        """Return µ (KL[q ‖ q_received] + N/2 ‖w − w_received‖²), or with norms."""
        from bfl.keras import tf

        divergence = step.network.divergence_from(inputs["mean"], inputs["scale"])
        shift = step.network.trainable_points() - inputs["point"]
        if self.proximal_distance == "squared":
            far = tf.reduce_sum(tf.square(shift))
        else:
            far = tf.zeros([])
            moved = [each for each in step.network.manifest.point if each.trainable]
            parts = tf.split(shift, [each.size for each in moved])
            for parameter, part in zip(moved, parts, strict=True):
                if parameter.name.endswith(WEIGHTS):
                    squared = tf.reduce_sum(tf.square(part))
                    # A root has no finite gradient at 0, where every round begins.
                    root = tf.sqrt(tf.where(squared > 0, squared, 1.0))
                    far += tf.where(squared > 0, root, 0.0)
        distance = 0.5 * examples * far
        return Value(shared=self.proximal_mu * (divergence + distance))
