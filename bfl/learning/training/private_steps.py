"""Steps along noised sums of single examples' gradients, each of which is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.data.images import Images
from bfl.errors import ConfigurationError
from bfl.keras import tf
from bfl.learning.augmentations import Augmentation
from bfl.learning.example_privacy import ExamplePrivacy, PrivateGradients
from bfl.learning.networks.layers import split
from bfl.learning.networks.network import as_labels, normalized_images, of_images
from bfl.learning.training.learner import Batch, Learner
from bfl.learning.training.task import LocalTask


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
        total, of_examples = self._summed_gradients(images, labels, keys, count)
        expected = self._privacy.example_sampling_rate * tf.cast(count, tf.float64)
        noised = tf.cast((total + noise) / expected, tf.float32)
        rest, of_the_rest = learner.shared_gradients(count)
        gradients = [
            tf.reshape(part, other.shape) + other
            for part, other in zip(tf.split(noised, self._sizes), rest, strict=True)
        ]
        learner.step(gradients, number, self._rate_of(number, rate))
        return tf.concat([of_examples, of_the_rest], axis=0)

    def _summed_gradients(self, images: Any, labels: Any, keys: Any, count: Any) -> tuple[Any, Any]:
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
