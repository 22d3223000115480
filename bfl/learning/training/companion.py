"""A personal model in training besides the meme: both on one mini-batch, in one graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from bfl import randomness
from bfl.federation.parts import Arrays
from bfl.keras import tf
from bfl.learning.networks.network import Network
from bfl.learning.objectives import objectives
from bfl.learning.optimizers import Optimizer
from bfl.learning.personalizations import PersonalModel
from bfl.learning.training.learner import learner_of
from bfl.learning.training.task import LocalTask
from bfl.named_arrays import add_prefix, strip_prefix
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS

_OPTIMIZER = "optimizer-"


@dataclass(frozen=True)
class PersonalNetwork:
    """Personal network of a trainer of two models, besides the meme.

    Attributes:
        network: The personal model's network; no other trainer loads it.
        optimizer: What its steps do with the gradient.
        mean: A network of the meme's parameters as points, which predicts for the meme at its mean.
    """

    personalization: PersonalModel
    network: Network
    optimizer: Optimizer
    mean: Network


class Companion:
    """The personal model of a trainer, with the variables that a task sets.

    Args:
        temperature: T, see ``LocalTrainer``; the personal model's likelihood has it as well.
    """

    def __init__(self, personal: PersonalNetwork, temperature: float) -> None:
        self.personalization = personal.personalization
        self.network = personal.network
        self.mean = personal.mean
        terms = (objectives.create("elbo"),)
        self.learner = learner_of(
            personal.network, personal.optimizer, terms, temperature=temperature
        )
        self.key = tf.Variable(tf.zeros([2], tf.int32), trainable=False)
        self.rate = tf.Variable(0.0, trainable=False)

    def begin(self, task: LocalTask, run_steps: int) -> None:
        """Set all variables to what a task begins with.

        Raises:
            ValueError: The task says nothing of a personal model.
        """
        personal = task.personal
        if personal is None:
            raise ValueError("the task says nothing of the personal model that the trainer has")
        state = personal.state
        start = (
            Posterior(*(state[name] for name in VECTORS))
            if "mean" in state
            else self.network.initial_posterior(personal.seed)
        )
        optimizer_state = strip_prefix(_OPTIMIZER, state)
        self.learner.begin(start, start, personal.prior(start), optimizer_state, run_steps)
        self.key.assign(randomness.key(task.seed, "personal-steps", *task.key_labels))
        self.rate.assign(personal.learning_rate)

    def state(self, task: LocalTask, steps: int) -> Arrays:
        """Return what the client keeps of the personal model after a task."""
        kept: dict[str, npt.NDArray[Any]] = {**self.network.posterior().vectors()}
        if task.personal and task.personal.keeps_optimizer:
            kept |= add_prefix(_OPTIMIZER, self.learner.optimized.state(steps))
        return kept
