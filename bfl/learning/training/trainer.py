"""ClientUpdate of Algorithm 1: a posterior in, local epochs on one client's data, a posterior out.

Source: Fischer et al. (2024), section 2.1, Algorithm 1, and section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl import archives, randomness
from bfl.data.images import Images
from bfl.errors import ConfigurationError
from bfl.federation.parts import Arrays
from bfl.keras import tf
from bfl.learning import personalizations
from bfl.learning.augmentations import Augmentation
from bfl.learning.corrections import Correction, corrections
from bfl.learning.example_privacy import ExamplePrivacy, PrivateGradients
from bfl.learning.networks.layers import split
from bfl.learning.networks.network import Network, as_labels, normalized_images, of_images
from bfl.learning.objectives import Term, objectives
from bfl.learning.optimizers import Optimizer
from bfl.learning.priors import NormalPrior
from bfl.learning.training import LocalResult, LocalTask
from bfl.learning.training.learner import Batch, Learner, batches
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS


class LocalTrainer:
    """Trains a network on one client's examples; built and traced once for all clients and rounds.

    The objective is a sum of terms; the default is the ELBO, per example −E_q[log p(y | x, θ)] +
    KL[q ‖ p] / N with the client's own N (Eq. 6 over N), so that the divergence counts exactly once
    per epoch. A task says what the optimizer begins with, on which the papers are silent.

    With a temperature T the likelihood is raised to 1/T, in whatever objective. The whole is
    multiplied by T, so that learning rates mean what they mean at T = 1 (Wenzel et al. 2020, "How
    good is the Bayes posterior in deep neural networks really?", section 2.3).

    Args:
        objective: The terms of the objective; None for the ELBO alone.
        temperature: T.
        rate_decay: What the learning rate is multiplied by after each step.
        personal: A personal model that is trained besides the network.
        compiled: Whether XLA compiles a training step; one that protects examples it never does.
    """

    def __init__(
        self,
        network: Network,
        batch_size: int,
        augmentation: Augmentation,
        optimizer: Optimizer,
        *,
        objective: tuple[Term, ...] | None = None,
        correction: Correction | None = None,
        temperature: float = 1.0,
        rate_decay: float = 1.0,
        personal: PersonalNetwork | None = None,
        example_privacy: ExamplePrivacy | None = None,
        compiled: bool = False,
    ) -> None:
        self.network = network
        self.batch_size = batch_size
        self.augmentation = augmentation
        self.optimizer = optimizer
        self.correction = correction or corrections.create("none")
        self.temperature = temperature
        self.rate_decay = rate_decay
        self.traces = 0
        terms = objective or (objectives.create("elbo"),)
        corrected = self.correction.active
        self.learner = Learner(
            network, optimizer, terms, temperature=temperature, corrected=corrected
        )
        self.companion = Companion(personal, temperature) if personal else None
        self.private_steps = (
            PrivateSteps(self.learner, example_privacy, augmentation, self._rate_of)
            if example_privacy and example_privacy.active
            else None
        )
        # A step by itself, whose shapes are the same for all clients: XLA compiles each anew.
        # AutoGraph would look through all that a step calls and find nothing to convert.
        self._one_step = (
            tf.function(self._step, jit_compile=True, autograph=False)
            if compiled
            else tf.autograph.experimental.do_not_convert(self._step)
        )
        order, weights = (tf.TensorSpec([None, batch_size], t) for t in (tf.int32, tf.float32))
        rate = tf.TensorSpec([], tf.float32)  # and so is the number of examples
        examples = [None, order, weights, tf.TensorSpec([2], tf.int32), rate, rate]
        self._run = of_images(self._steps, network, *examples)

    def train(self, images: Images, labels: npt.NDArray[Any], task: LocalTask) -> LocalResult:
        """Return the posterior that a client's local epochs lead to.

        Given are all training images (N_all, H, W, C) and labels (N_all,), classes or float32.
        """
        count = int(task.examples.size)
        run_steps = task.rounds * task.epochs * -(-count // self.batch_size)
        start = task.start or task.received
        self.learner.begin(start, task.received, task.prior, task.optimizer_state, run_steps)
        if self.learner.offsets:
            self.learner.offsets.assign(task.offsets)
        if self.companion:
            self.companion.begin(task, run_steps)
        seen = count
        own, each = (images[task.examples], labels[task.examples]), np.ones(count, np.float32)
        if self.private_steps:
            measured, taken = self.private_steps.run(*own, task)
            seen = max(1, int(taken[-(len(taken) // task.epochs) :].sum()))
        else:
            generator = randomness.generator(task.seed, "batches", *task.key_labels)
            order, weights = batches(count, self.batch_size, task.epochs, generator)
            if task.balanced:
                from sklearn.utils.class_weight import compute_sample_weight

                each = compute_sample_weight("balanced", own[1]).astype(np.float32)
            measured = self._run(
                # Only the client's own become tensors: a process holds the data set once.
                tf.constant(own[0]),
                as_labels(own[1]),
                tf.constant(order),
                tf.constant(weights * each[order]),
                tf.constant(randomness.key(task.seed, "steps", *task.key_labels)),
                tf.constant(task.likelihood_examples or count, tf.float32),
                tf.constant(task.learning_rate, tf.float32),
            ).numpy()
        key = randomness.key(task.seed, "fisher-information", *task.key_labels)
        steps = len(measured)
        last_epoch = measured[-(steps // task.epochs) :]
        likelihood, summed = last_epoch[:, :2].sum(axis=0, dtype=np.float64) / seen
        divergence, shared = map(float, measured[-1, 2:])
        return LocalResult(
            posterior=self.learner.posterior(*own, each, self.batch_size, key),
            objective=float(summed) + shared / (task.likelihood_examples or count),
            negative_log_likelihood=float(likelihood),
            divergence=divergence,
            optimizer_state=self.learner.optimized.state(steps) if task.keeps_optimizer else {},
            steps=steps,
            trainable=self.network.manifest.trainable_points,
            personal=self.companion.state(task, steps) if self.companion else {},
        )

    def _steps(
        self, images: Any, labels: Any, order: Any, weights: Any, key: Any, count: Any, rate: Any
    ) -> Any:
        self.traces += 1
        steps = tf.shape(order)[0]
        measured = tf.TensorArray(tf.float32, size=steps)
        keys = split(key, steps)
        personal_keys = split(self.companion.key, steps) if self.companion else keys
        for step in tf.range(steps):
            batch = tf.gather(images, order[step]), tf.gather(labels, order[step]), weights[step]
            own = keys[step], personal_keys[step], step, count, self._rate_of(step, rate)
            measured = measured.write(step, self._one_step(*batch, *own))
        return measured.stack()

    def _rate_of(self, step: Any, rate: Any) -> Any:
        if self.rate_decay == 1.0:
            return rate
        return rate * tf.pow(self.rate_decay, tf.cast(step, tf.float32))

    def _step(
        self,
        images: Any,
        labels: Any,
        weights: Any,
        key: Any,
        personal_key: Any,
        number: Any,
        count: Any,
        rate: Any,
    ) -> Any:
        batch, network_key = self._batch(images, labels, weights, key, count)
        meme = personalizations.Model(self.learner, batch, network_key, number, rate)
        if not self.companion:
            return meme.learn(meme.forward())
        companion = self.companion
        own_key, mean_key = tf.unstack(split(personal_key, 2))
        personal = personalizations.Model(companion.learner, batch, own_key, number, companion.rate)
        both = personalizations.BothModels(meme, personal, companion.mean, mean_key)
        return companion.personalization.step(both)

    def _batch(
        self, images: Any, labels: Any, weights: Any, key: Any, count: Any
    ) -> tuple[Batch, Any]:
        images_key, network_key = tf.unstack(split(key, 2))
        augmented = self.augmentation.augment(normalized_images(images), images_key)
        return Batch(augmented, labels, weights, count), network_key


class PrivateSteps:
    """The steps of a task, one example at a time; traced once for batches of any size.

    The batches and the noise are drawn outside of the graph, from the task's secret randomness.

    Args:
        rate_of: Gives a step's learning rate by its number and the task's rate, inside the graph.
    """

    def __init__(
        self,
        learner: Learner,
        privacy: ExamplePrivacy,
        augmentation: Augmentation,
        rate_of: Callable[[Any, Any], Any],
    ) -> None:
        if not isinstance(privacy, PrivateGradients):
            raise ConfigurationError(
                f"example-privacy '{privacy.name}' bounds no gradients; allowed: none, or a "
                "subclass of PrivateGradients"
            )
        self.traces = 0
        self._learner = learner
        self._privacy = privacy
        self._augmentation = augmentation
        self._rate_of = rate_of
        self._sizes = [v.shape.num_elements() for v in learner.optimized.variables]
        keys = tf.TensorSpec([None, 2], tf.int32)
        noise = tf.TensorSpec([sum(self._sizes)], tf.float64)
        number, real = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)
        arguments = [None, keys, noise, number, real, real]
        self._run = of_images(self._step, learner.network, *arguments, autograph=False)

    def run(
        self, images: Images, labels: npt.NDArray[Any], task: LocalTask
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Make all steps of a task, whose beginning is set, on the client's images and labels.

        What was measured in each step, (steps, 4) as by ``Learner.gradients``, and how many
        examples it has taken, (steps,), is returned. Neither is private.
        """
        count, steps = len(labels), self._privacy.steps(task.epochs)
        draws = task.draws or randomness.generator(task.seed, "example-privacy", *task.key_labels)
        keys = split(randomness.key(task.seed, "steps", *task.key_labels), steps)
        measured, taken = [], []
        for number in range(steps):
            batch = self._privacy.batch(count, draws)
            noise = self._privacy.noise(sum(self._sizes), draws)
            values = self._run(
                tf.constant(images[batch]),
                as_labels(labels[batch]),
                # One key for each example of the client, whoever else is in the batch.
                tf.gather(split(keys[number], count), batch),
                tf.constant(noise),
                tf.constant(number),
                tf.constant(count, tf.float32),
                tf.constant(task.learning_rate, tf.float32),
            )
            measured.append(values.numpy())
            taken.append(len(batch))
        return np.stack(measured), np.array(taken)

    def _step(
        self, images: Any, labels: Any, keys: Any, noise: Any, number: Any, count: Any, rate: Any
    ) -> Any:
        self.traces += 1
        learner = self._learner
        total, of_examples = self._sum_gradients(images, labels, keys, count)
        expected = self._privacy.example_sampling_rate * tf.cast(count, tf.float64)
        noised = tf.cast((total + noise) / expected, tf.float32)
        rest, of_the_rest = learner.shared_gradients(count)
        gradients = [
            tf.reshape(part, other.shape) + other
            for part, other in zip(tf.split(noised, self._sizes), rest, strict=True)
        ]
        learner.step(gradients, number, self._rate_of(number, rate))
        return tf.concat([of_examples, of_the_rest], axis=0)

    def _sum_gradients(self, images: Any, labels: Any, keys: Any, count: Any) -> tuple[Any, Any]:
        # Each example is taken by itself, in a pass of one, so that nothing that a network does
        # between the examples of a batch has a part in it. The sum is float64 (D + P,), by all
        # trained variables in a row; with it come the sums of NLL and objective, (2,).
        def body(index: Any, total: Any, measured: Any) -> tuple[Any, Any, Any]:
            images_key, network_key = tf.unstack(split(keys[index], 2))
            image = normalized_images(images[index][tf.newaxis])
            augmented = self._augmentation.augment(image, images_key)
            one = Batch(augmented, labels[index][tf.newaxis], tf.ones([1]), count)
            gradients, values = self._learner.example_gradients(one, network_key)
            joined = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)
            gradient = tf.cast(joined, tf.float64)
            # A product with 0 is 0 here, whatever the other factor.
            bounded = tf.math.multiply_no_nan(gradient, self._privacy.scale(tf.norm(gradient)))
            return index + 1, total + bounded, measured + values

        beginning = (tf.constant(0), tf.zeros([sum(self._sizes)], tf.float64), tf.zeros([2]))
        size = tf.shape(labels)[0]
        _, total, measured = tf.while_loop(lambda index, *_: index < size, body, beginning)
        return total, measured


local_trainer = lru_cache(maxsize=16)(LocalTrainer)  # built and traced once per process
OPTIMIZER = "optimizer-"  # before what a personal model's optimizer keeps


@dataclass(frozen=True)
class PersonalNetwork:
    """Personal network of a trainer of two models, besides the meme.

    Attributes:
        network: The personal model's network; no other trainer loads it.
        mean: A network of the meme's parameters as points, which predicts for the meme at its mean.
    """

    personalization: personalizations.PersonalModel
    network: Network
    optimizer: Optimizer
    mean: Network


class Companion:
    """The personal model of a trainer, with the variables that a task sets."""

    def __init__(self, personal: PersonalNetwork, temperature: float) -> None:
        self.personalization = personal.personalization
        self.network = personal.network
        self.mean = personal.mean
        terms = (objectives.create("elbo"),)
        self.learner = Learner(personal.network, personal.optimizer, terms, temperature=temperature)
        self.key = tf.Variable(tf.zeros([2], tf.int32), trainable=False)
        self.rate = tf.Variable(0.0, trainable=False)

    def begin(self, task: LocalTask, run_steps: int) -> None:
        """Set all variables to what a task begins with."""
        personal = task.personal
        if personal is None:
            raise ValueError("the task says nothing of the personal model that the trainer has")
        state = personal.state
        start = self.network.initial_posterior(personal.seed)
        if "mean" in state:
            start = Posterior(*(state[name] for name in VECTORS))
        optimizer_state = archives.strip_prefix(OPTIMIZER, state)
        self.learner.begin(start, start, NormalPrior(0.0, 1.0), optimizer_state, run_steps)
        self.key.assign(randomness.key(task.seed, "personal-steps", *task.key_labels))
        self.rate.assign(personal.learning_rate)

    def state(self, task: LocalTask, steps: int) -> Arrays:
        """Return what the client keeps of the personal model after a task."""
        kept: dict[str, npt.NDArray[Any]] = {**self.network.posterior().vectors()}
        if task.personal and task.personal.keeps_optimizer:
            kept |= archives.add_prefix(OPTIMIZER, self.learner.optimized.state(steps))
        return kept
