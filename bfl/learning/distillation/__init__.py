"""Distillation on the server: a student trained on soft labels of the server's own images."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.aggregation.server import DistillationTask, Distilled
from bfl.data.images import Images
from bfl.keras import keras, tf
from bfl.learning.augmentations import Augmentation
from bfl.learning.networks.layers import split
from bfl.learning.networks.network import Network, normalized_images, of_images
from bfl.learning.optimizers import Optimizer
from bfl.learning.training.learner import OptimizedVariables, batches, filled_batches
from bfl.posteriors import Posterior


class StatisticsPass:
    """Sets a network's moving statistics to the means, over batches, of the batches' own.

    The last batch counts by its size.

    Source: Izmailov et al. (2018), section 3.2: an average of models has statistics of its own.
    """

    def __init__(self, network: Network, batch_size: int = 128) -> None:
        self.network = network
        self.batch_size = batch_size
        self.traces = 0
        normalization = keras.layers.BatchNormalization
        self._layers = [each for each in network.model.layers if isinstance(each, normalization)]

        def visit(images: Any, key: Any) -> Any:
            self.traces += 1
            return network.logits(normalized_images(images), key, training=True)

        key = tf.TensorSpec([2], tf.int32)
        self._forward = of_images(visit, network, key, autograph=False)

    def recompute(self, images: Images, seed: int, labels: tuple[int | str, ...]) -> None:
        """Set the statistics to those of images (N, H, W, C); draws are keyed by the labels."""
        if not self._layers:
            return
        variables = [
            v for layer in self._layers for v in (layer.moving_mean, layer.moving_variance)
        ]
        # From 0, a step of the moving average leaves its share of the batch's own.
        shares = [1.0 - layer.momentum for layer in self._layers for _ in range(2)]
        sums = [np.zeros(v.shape) for v in variables]
        for start in range(0, len(images), self.batch_size):
            for variable in variables:
                variable.assign(tf.zeros_like(variable))
            batch = images[start : start + self.batch_size]
            key = randomness.key(seed, "statistics", *labels, start)
            self._forward(tf.constant(batch), tf.constant(key))
            for total, variable, share in zip(sums, variables, shares, strict=True):
                total += len(batch) / share * variable.numpy()
        for total, variable in zip(sums, variables, strict=True):
            variable.assign((total / len(images)).astype(np.float32))


statistics_pass = lru_cache(maxsize=8)(StatisticsPass)  # traced once per process


class Distiller:
    """Trains a student on images with soft labels; built and traced once for all rounds.

    What it makes small is −1/J Σ_j p̂_j · log p(y | x_j; w), the mean over the images. Means and
    point values are trained; untransformed scales stay as they are.

    Source: Chen and Chao (2021), FedBE, section 4.
    """

    def __init__(
        self, network: Network, batch_size: int, augmentation: Augmentation, optimizer: Optimizer
    ) -> None:
        self.network = network
        self.batch_size = batch_size
        self.augmentation = augmentation
        self.traces = 0
        self._optimized = OptimizedVariables(network, optimizer, with_scales=False)
        data = [
            tf.TensorSpec([None, network.classes], tf.float32),
            tf.TensorSpec([None, batch_size], tf.int32),
            tf.TensorSpec([None, batch_size], tf.float32),
            tf.TensorSpec([2], tf.int32),
        ]
        rates, scale = tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)
        self._run = of_images(self._steps, network, *data, rates, scale)
        self._measure = of_images(self._sum_losses, network, *data)

    def distil(self, images: Images, task: DistillationTask) -> Distilled:
        """Return the student that a task leads to on the server's own images (N, H, W, C)."""
        plan = task.plan
        data = tf.constant(images), tf.constant(task.targets)
        self.network.load(task.start)
        self._optimized.begin({})
        before = self.cross_entropy(images, task)
        generator = randomness.generator(task.seed, "batches", *task.labels)
        order = batches(len(images), self.batch_size, plan.epochs, generator)
        keys = split(randomness.key(task.seed, "steps", *task.labels), len(plan.segments()))
        total: dict[str, npt.NDArray[np.float64]] = {}
        collected = 0
        for (part, collects), key in zip(plan.segments(), keys, strict=True):
            self._run(
                *data,
                *(tf.constant(array[part]) for array in order),
                key,
                tf.constant(plan.rates[part]),
                tf.constant(plan.loss_scale, tf.float32),
            )
            if collects:
                for name, vector in self.network.posterior().vectors().items():
                    total[name] = total.get(name, 0.0) + vector.astype(np.float64)
                collected += 1
        if collected:
            mean = {name: (sums / collected).astype(np.float32) for name, sums in total.items()}
            self.network.load(Posterior(**mean))
            passes = statistics_pass(self.network, self.batch_size)
            passes.recompute(images, task.seed, task.labels)
        student = self.network.posterior()
        return Distilled(
            # The variances' own bits: the network holds them as untransformed scales.
            Posterior(student.mean, task.start.variance, student.point),
            before=before,
            after=self.cross_entropy(images, task),
            collected=collected,
        )

    def cross_entropy(self, images: Images, task: DistillationTask) -> float:
        """Return the predicting network's cross-entropy to a task's targets, in nats per image."""
        key = randomness.key(task.seed, "measured", *task.labels)
        visit = filled_batches(np.arange(len(images)), self.batch_size)
        arguments = map(tf.constant, (images, task.targets, *visit, key))
        return float(self._measure(*arguments)) / len(images)

    def _steps(
        self, images: Any, targets: Any, order: Any, weights: Any, key: Any, rates: Any, scale: Any
    ) -> Any:
        self.traces += 1
        steps = tf.shape(order)[0]
        keys = split(key, steps)
        for step in tf.range(steps):
            self._step(
                tf.gather(images, order[step]),
                tf.gather(targets, order[step]),
                weights[step],
                keys[step],
                rates[step],
                scale,
            )

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def _step(
        self, images: Any, targets: Any, weights: Any, key: Any, rate: Any, scale: Any
    ) -> None:
        gradients = self.gradients(images, targets, weights, key, scale)
        self._optimized.step(gradients, 0, rate)
        self._optimized.steps_before.assign_add(1)

    def gradients(self, images: Any, targets: Any, weights: Any, key: Any, scale: Any) -> list[Any]:
        """Return the gradient of a batch's mean cross-entropy, times ``scale``, by all variables.

        Targets (B, classes) are probabilities; weights (B,) are 0 for images that only fill up.
        """
        images_key, network_key = tf.unstack(split(key, 2))
        batch = self.augmentation.augment(normalized_images(images), images_key)
        with tf.GradientTape() as tape:
            logits = self.network.logits(batch, network_key, training=True)
            each = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
            loss = scale * tf.reduce_sum(each * weights) / tf.reduce_sum(weights)
        found: list[Any] = tape.gradient(loss, self._optimized.variables)
        return found

    def _sum_losses(self, images: Any, targets: Any, order: Any, weights: Any, key: Any) -> Any:
        keys = split(key, tf.shape(order)[0])
        total = tf.zeros([])
        for step in tf.range(tf.shape(order)[0]):
            batch = normalized_images(tf.gather(images, order[step]))
            logits = self.network.logits(batch, keys[step], training=False)
            each = tf.nn.softmax_cross_entropy_with_logits(tf.gather(targets, order[step]), logits)
            total += tf.reduce_sum(each * weights[step])
        return total


distiller_for = lru_cache(maxsize=8)(Distiller)  # built and traced once per process
