"""Local training: a posterior in, epochs on some examples, a posterior out.

Here is the task of one client in one round, and its result. ``trainer`` is the training itself,
traced once for all tasks; ``learner`` has one network's variables, loss and steps, and the order of
examples. Importing this package does not import TensorFlow; both of these do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.federation.parts import Arrays, Trained
from bfl.federation.privacy import Normals
from bfl.learning.priors import Density
from bfl.posteriors import Posterior

IntArray = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class PersonalTask:
    """Task of one client's personal model in one round; with no state it begins as its network."""

    state: Arrays
    seed: int
    learning_rate: float
    keeps_optimizer: bool = False


@dataclass(frozen=True)
class LocalTask:
    """Task of one client in one round.

    Attributes:
        examples: (N,) positions of the client's examples in the data set.
        key_labels: What keys the randomness besides the seed: round and partition id.
        optimizer_state: The optimizer's, as an earlier ``LocalResult`` has it; empty: begin anew.
        start: Where the optimizer begins; None for the received posterior.
        offsets: What a trainer with a correction adds to the gradient of every step: ``mean`` (D,)
            and ``point`` (P,).
        likelihood_examples: How many examples the likelihood counts, so that the rest of the
            objective has its share of them; 0: the client's own.
        draws: Of the batches and the noise of examples' privacy; None: keyed by the seed.
        balanced: Whether examples count in the likelihood by N / (C n_c), n_c being how many of the
            client's N are of their class.
    """

    received: Posterior
    prior: Density
    examples: IntArray
    epochs: int
    learning_rate: float
    key_labels: tuple[int | str, ...]
    seed: int
    optimizer_state: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    keeps_optimizer: bool = False
    start: Posterior | None = None
    offsets: Arrays = field(default_factory=dict)
    personal: PersonalTask | None = None
    likelihood_examples: int = 0
    draws: Normals | None = None
    rounds: int = 1
    balanced: bool = False


@dataclass(frozen=True)
class LocalResult:
    """Result of one client: its posterior and its means over the last epoch.

    Attributes:
        objective: Nats per example; for the ELBO alone NLL + T KL / N, with T the temperature.
        negative_log_likelihood: Nats per example.
        divergence: KL[q ‖ p] in the last step, in nats, not divided by N.
        optimizer_state: Vectors (n,) over all trainable variables, and the number of ``steps``;
            empty where the task does not keep it.
        trainable: (P,) which point parameters training moves by their gradient.
        personal: What the client keeps of its personal model, with its optimizer's where kept.
    """

    posterior: Posterior
    objective: float
    negative_log_likelihood: float
    divergence: float
    optimizer_state: Mapping[str, npt.NDArray[Any]]
    steps: int
    trainable: npt.NDArray[np.bool_]
    personal: Arrays = field(default_factory=dict)

    def to_trained(self, task: LocalTask, sent: Posterior, broadcast: Arrays) -> Trained:
        """Return what the parts of a method use after training."""
        return Trained(
            received=task.received,
            sent=sent,
            broadcast=broadcast,
            examples=int(task.examples.size),
            steps=self.steps,
            learning_rate=task.learning_rate,
            trainable=self.trainable,
            personal=self.personal,
        )
