"""ClientUpdate of Algorithm 1: a posterior in, local epochs on one client's data, a posterior out.

Source: Fischer et al. (2024), section 2.1, Algorithm 1, and section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.augmentations import Augmentation
from bfl.keras import tf
from bfl.networks.keys import split
from bfl.networks.network import Network, normalized_images
from bfl.optimizers import Optimizer, TrainedVariable
from bfl.posteriors import Posterior

IntArray = npt.NDArray[np.integer[Any]]


def learning_rate(initial: float, server_round: int, decay: float, silent_rounds: int) -> float:
    """Return the learning rate of a round: constant, then decaying exponentially.

    η · exp(−decay · max(0, round − silent rounds)).

    Args:
        initial: η, the rate of the first rounds.
        server_round: The round, from 1.
        decay: What the logarithm of the rate loses each round.
        silent_rounds: Rounds before the decay begins.

    Source: Fischer et al. (2024), section 3.3: η = 0.001, "a factor of .04 every round after a
    silent period of 50 aggregation rounds".
    """
    return initial * math.exp(-decay * max(0, server_round - silent_rounds))


def batches(
    count: int, batch_size: int, epochs: int, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the order in which an epoch, or several, visit a client's examples.

    Every epoch is a permutation. All batches have one size, so that the training step is traced
    once: the last batch is filled up with the epoch's first examples at weight 0, which take part
    in batch normalisation's statistics but not in the loss.

    Args:
        count: The client's number of examples N.
        batch_size: B.
        epochs: E.
        generator: Where the permutations come from.

    Returns:
        Positions (E·⌈N/B⌉, B) into the client's examples, and their weights (E·⌈N/B⌉, B), 1 or 0.
    """
    steps = -(-count // batch_size)
    weights = np.zeros(steps * batch_size, np.float32)
    weights[:count] = 1.0
    orders = [np.resize(generator.permutation(count), steps * batch_size) for _ in range(epochs)]
    order = np.stack(orders).reshape(epochs * steps, batch_size)
    return order.astype(np.int32), np.tile(weights.reshape(steps, batch_size), (epochs, 1))


@dataclass(frozen=True)
class LocalTask:
    """What one client has to do in one round.

    Attributes:
        received: The global posterior.
        prior: Mean and standard deviation of the prior: vectors (D,) or one number each.
        examples: (N,) positions of the client's examples in the data set.
        epochs: E.
        learning_rate: η of this round.
        key_labels: What keys the randomness beside the seed: round and partition id.
        seed: The run's seed.
        optimizer_state: The optimizer's vectors and number of steps, as an earlier
            ``LocalResult`` has them; empty to begin anew.
    """

    received: Posterior
    prior: tuple[Any, ...]
    examples: IntArray
    epochs: int
    learning_rate: float
    key_labels: tuple[int | str, ...]
    seed: int
    optimizer_state: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalResult:
    """What came out: the client's posterior and its means over the last epoch.

    Attributes:
        posterior: The client's posterior.
        objective: The mean per example of the last epoch, NLL + KL / N, in nats.
        negative_log_likelihood: Its first part, in nats per example.
        divergence: KL[q ‖ p] in the last step, in nats, not divided by N.
        optimizer_state: The optimizer's vectors (n,) by their names, each over all trainable
            variables, and its number of ``steps`` ().
        steps: How many steps were made.
    """

    posterior: Posterior
    objective: float
    negative_log_likelihood: float
    divergence: float
    optimizer_state: Mapping[str, npt.NDArray[Any]]
    steps: int


class LocalTrainer:
    """Trains a network on one client's examples; built and traced once for all clients and rounds.

    The objective per example is −E_q[log p(y | x, θ)] + KL[q ‖ p] / N with the client's own N (Eq.
    6 over N), so that the divergence counts exactly once per epoch. The papers are silent on
    whether what the optimizer keeps outlives a round: a task says what it begins with.

    Args:
        network: The network to train.
        batch_size: B.
        augmentation: What is done to training images.
        optimizer: What a step does with the gradient.
        compiled: Whether XLA compiles a training step.
    """

    def __init__(
        self,
        network: Network,
        batch_size: int,
        augmentation: Augmentation,
        optimizer: Optimizer,
        *,
        compiled: bool = False,
    ) -> None:
        self.network = network
        self.batch_size = batch_size
        self.augmentation = augmentation
        self.optimizer = optimizer
        self.traces = 0
        scales = {id(variable) for variable in _scales(network)}
        self._variables = network.trainable_variables
        self._trained = [
            TrainedVariable(
                variable,
                tuple(tf.Variable(tf.zeros_like(variable)) for _ in optimizer.slots),
                scale=id(variable) in scales,
            )
            for variable in self._variables
        ]
        self._steps_before = tf.Variable(0, trainable=False)
        # A step by itself, whose shapes are the same for all clients: XLA compiles each anew. No
        # AutoGraph, which would look through all that a step calls and find nothing to convert.
        self._one_step = (
            tf.function(self._step, jit_compile=True, autograph=False)
            if compiled
            else tf.autograph.experimental.do_not_convert(self._step)
        )
        self._run = tf.function(
            self._steps,
            input_signature=[
                tf.TensorSpec([None, *network.image_shape], tf.uint8),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None, batch_size], tf.int32),
                tf.TensorSpec([None, batch_size], tf.float32),
                tf.TensorSpec([2], tf.int32),
                tf.TensorSpec([], tf.float32),
                tf.TensorSpec([], tf.float32),
            ],
        )

    def train(
        self, images: npt.NDArray[np.uint8], labels: IntArray, task: LocalTask
    ) -> LocalResult:
        """Return the posterior that a client's local epochs lead to.

        Args:
            images: The data set's training images (N_all, H, W, C).
            labels: Their labels (N_all,).
            task: What to do.
        """
        count = int(task.examples.size)
        generator = randomness.generator(task.seed, "batches", *task.key_labels)
        order, weights = batches(count, self.batch_size, task.epochs, generator)
        self._begin(task)
        # Only the client's own become tensors: a process holds the data set once.
        losses, divergence = self._run(
            tf.constant(images[task.examples]),
            tf.constant(labels[task.examples], tf.int32),
            tf.constant(order),
            tf.constant(weights),
            tf.constant(randomness.key(task.seed, "steps", *task.key_labels)),
            tf.constant(count, tf.float32),
            tf.constant(task.learning_rate, tf.float32),
        )
        last_epoch = losses.numpy()[-(order.shape[0] // task.epochs) :]
        mean_loss = float(last_epoch.sum(dtype=np.float64)) / count
        return LocalResult(
            posterior=self.network.posterior(),
            objective=mean_loss + float(divergence) / count,
            negative_log_likelihood=mean_loss,
            divergence=float(divergence),
            optimizer_state=self._optimizer_state(order.shape[0]),
            steps=order.shape[0],
        )

    def _begin(self, task: LocalTask) -> None:
        self.network.load(task.received)
        self.network.set_prior(*task.prior)
        state = task.optimizer_state
        self._steps_before.assign(int(state["steps"]) if state else 0)
        sizes = [variable.shape.num_elements() for variable in self._variables]
        for index, name in enumerate(self.optimizer.slots):
            vector = state[name] if state else np.zeros(sum(sizes), np.float32)
            parts = np.split(vector, np.cumsum(sizes)[:-1])
            for trained, part in zip(self._trained, parts, strict=True):
                trained.slots[index].assign(part.reshape(trained.variable.shape))

    def _optimizer_state(self, steps: int) -> dict[str, npt.NDArray[Any]]:
        vectors = {
            name: np.concatenate(
                [trained.slots[index].numpy().ravel() for trained in self._trained]
            )
            for index, name in enumerate(self.optimizer.slots)
        }
        return {**vectors, "steps": np.array(int(self._steps_before.numpy()) + steps)}

    def _steps(
        self,
        images: Any,
        labels: Any,
        order: Any,
        weights: Any,
        key: Any,
        count: Any,
        rate: Any,
    ) -> tuple[Any, Any]:
        """Run all steps inside the graph; return the summed NLL of each step, and the last KL."""
        self.traces += 1
        steps = tf.shape(order)[0]
        losses = tf.TensorArray(tf.float32, size=steps)
        divergence = tf.zeros([])
        keys = split(key, steps)
        for step in tf.range(steps):
            summed, divergence = self._one_step(
                tf.gather(images, order[step]),
                tf.gather(labels, order[step]),
                weights[step],
                keys[step],
                self._steps_before + step,
                count,
                rate,
            )
            losses = losses.write(step, summed)
        return losses.stack(), divergence

    def _step(
        self, images: Any, labels: Any, weights: Any, key: Any, number: Any, count: Any, rate: Any
    ) -> tuple[Any, Any]:
        """Train on one batch; return its summed NLL and the divergence."""
        images_key, network_key = tf.unstack(split(key, 2))
        batch = self.augmentation.augment(normalized_images(images), images_key)
        with tf.GradientTape() as tape:
            logits = self.network.logits(batch, network_key, training=True)
            per_example = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            summed = tf.reduce_sum(per_example * weights)
            divergence = self.network.divergence()
            objective = summed / tf.reduce_sum(weights) + divergence / count
        gradients = tape.gradient(objective, self._variables)
        self.optimizer.step(self._trained, gradients, number, rate)
        return summed, divergence


def _scales(network: Network) -> list[Any]:
    """Return the variables of a network that hold untransformed scales ρ."""
    layers = network.model.layers
    parameters = [p for layer in layers for p in network.inference.parameters(layer)]
    scales = [p.untransformed_scale for p in parameters]
    return [variable for variable in scales if variable is not None]


@lru_cache(maxsize=8)
def local_trainer(
    network: Network,
    batch_size: int,
    augmentation: Augmentation,
    optimizer: Optimizer,
    compiled: bool = False,
) -> LocalTrainer:
    """Return the trainer of a network, built and traced at most once per process."""
    return LocalTrainer(network, batch_size, augmentation, optimizer, compiled=compiled)
