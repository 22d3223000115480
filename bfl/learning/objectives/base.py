"""What a term of the objective is: a function of a step, traced once for all clients and rounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bfl.federation.parts import Arrays, Part
from bfl.posteriors import Manifest, Posterior
from bfl.registry import Registry

if TYPE_CHECKING:
    from bfl.learning.networks.network import Network


@dataclass(frozen=True)
class SoftLabels:
    """Another network's predictions, with which a step compares beside the labels.

    Attributes:
        logits: (B, classes) of the other network; no gradient goes through them.
        share: What they count of the loss, in [0, 1]; the labels have the rest.
        temperature: By what both networks' logits are divided.
    """

    logits: Any
    share: float
    temperature: float = 1.0

    def divergence(self, logits: Any) -> Any:
        """Return τ² KL[softmax(theirs / τ) ‖ softmax(logits / τ)] of each example, (B,)."""
        from bfl.keras import tf

        theirs = tf.nn.log_softmax(tf.stop_gradient(self.logits) / self.temperature)
        ours = tf.nn.log_softmax(logits / self.temperature)
        each = tf.reduce_sum(tf.exp(theirs) * (theirs - ours), axis=-1)
        return self.temperature**2 * each


@dataclass(frozen=True)
class Step:
    """What the terms see of a step; all but the network are tensors of the graph.

    Attributes:
        network: The network that is trained.
        logits: (B, classes), float32.
        labels: (B,), int32.
        weights: (B,), 1 for the batch's examples and 0 for those that only fill it up.
        soft_labels: What the logits are compared with beside the labels, if anything.
    """

    network: Network
    logits: Any
    labels: Any
    weights: Any
    soft_labels: SoftLabels | None = None

    @cached_property
    def loss(self) -> Any:
        """What stands for −log p(y | x, θ) in an objective, summed over the batch's examples.

        It is that, or with soft labels of a share s, 1 − s times that and s times the divergence
        from them.
        """
        from bfl.keras import tf

        soft = self.soft_labels
        if soft is None:
            return self.negative_log_likelihood
        divergence = tf.reduce_sum(soft.divergence(self.logits) * self.weights)
        return (1.0 - soft.share) * self.negative_log_likelihood + soft.share * divergence

    @cached_property
    def negative_log_likelihood(self) -> Any:
        """−log p(y | x, θ), summed over the batch's examples, for the θ that were drawn."""
        from bfl.keras import tf

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

    Attributes:
        summed: Σ ℓ_n over the batch's examples; None for a term that sees none.
        shared: R; None for a term without.
    """

    summed: Any = None
    shared: Any = None


class Term(Part):
    """A summand of what a client makes small, per example and in nats.

    An objective is a chain of terms. What changes from task to task comes in as ``inputs``, which
    a trainer holds in variables, so that no client and no round traces the step anew.
    """

    @property
    def active(self) -> bool:
        """Whether it adds anything; if not, no step computes it."""
        return True

    def inputs(self, manifest: Manifest, received: Posterior) -> Arrays:
        """Return what a task gives the term: arrays of the same names and shapes for all tasks."""
        return {}

    @abstractmethod
    def value(self, step: Step, inputs: Mapping[str, Any], examples: Any) -> Value:
        """Return the term's value in a step, inside the graph.

        Args:
            step: The step.
            inputs: The task's ``inputs``, as tensors.
            examples: The client's number of examples N, a float32 tensor ().
        """


objectives: Registry[Term] = Registry("objective", "bfl.learning.objectives")
