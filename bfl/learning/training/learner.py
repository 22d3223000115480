"""One network in training: its batches, its loss and gradients on one, and its steps.

What a task hands to a step are variables, so that no task traces the step anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.encoding import LEAST_NOISE
from bfl.federation.parts import Arrays
from bfl.keras import tf, tfp
from bfl.learning.networks.layers import split
from bfl.learning.networks.network import Network, as_labels, normalized_images, of_images
from bfl.learning.objectives import SoftLabels, Step, Term
from bfl.learning.optimizers import Optimizer, TrainedVariable
from bfl.learning.priors import Density
from bfl.posteriors import Posterior


@dataclass(frozen=True)
class Batch:
    """A mini-batch, as tensors of the graph.

    Attributes:
        images: (B, H, W, C), normalised and augmented.
        labels: (B,), int32 classes or float32 numbers.
        weights: (B,), 1 or the class's weight; 0 for those that only fill the batch up.
        count: The client's number of examples N, float32 ().
    """

    images: Any
    labels: Any
    weights: Any
    count: Any


def present(weights: Any) -> Any:
    """Return the number of a batch's examples that do not only fill it up, float32 ()."""
    return tf.reduce_sum(tf.cast(weights > 0.0, tf.float32))


@dataclass(frozen=True)
class Pass:
    """A forward pass in training mode: its gradient tape and its logits (B, classes)."""

    tape: Any
    logits: Any


class Learner:
    """A network with an objective and an optimizer; if ``corrected``, with offsets to gradients."""

    def __init__(
        self,
        network: Network,
        optimizer: Optimizer,
        terms: Sequence[Term],
        *,
        temperature: float = 1.0,
        corrected: bool = False,
    ) -> None:
        self.network = network
        moves_scales = not network.inference.fits_variances
        self.optimized = OptimizedVariables(network, optimizer, with_scales=moves_scales)
        self.offsets = Offsets(network) if corrected else None
        self.terms = tuple(term for term in terms if term.active)
        self._information = fisher_information(network)
        # Any posterior of the right sizes: tasks bring their own.
        given = network.initial_posterior(0)
        self._inputs: list[dict[str, Any]] = [
            {
                name: tf.Variable(array, trainable=False, dtype=tf.float32)
                for name, array in term.inputs(network.manifest, given).items()
            }
            for term in self.terms
        ]
        self._temperature = temperature

    def begin(
        self,
        start: Posterior,
        received: Posterior,
        prior: Density,
        optimizer_state: Mapping[str, npt.NDArray[Any]],
        run_steps: int = 1,
    ) -> None:
        """Set all variables to what a task begins with; offsets are set apart.

        The terms of the objective compare with what was received. An optimizer without a state
        begins anew; the client makes ``run_steps`` in the whole run.
        """
        self.network.load(start)
        self.network.set_prior(prior)
        for term, variables in zip(self.terms, self._inputs, strict=True):
            if variables:
                for name, array in term.inputs(self.network.manifest, received).items():
                    variables[name].assign(np.asarray(array, np.float32))
        self.optimized.begin(optimizer_state)
        self.optimized.run_steps.assign(run_steps)

    def posterior(
        self, images: Any, labels: Any, weights: Any, most: int, key: npt.NDArray[np.int32]
    ) -> Posterior:
        """Return the network's posterior, its variances fitted if the inference fits them.

        Given are all of the client's examples, their weights (N,), and how many one pass takes.
        """
        posterior, inference = self.network.posterior(), self.network.inference
        if not inference.fits_variances:
            return posterior
        size = min(most, 1 + len(weights) // PARTS)
        order, present = filled_batches(np.arange(len(weights)), size)
        examples = tf.constant(images), as_labels(labels), order, present * weights[order]
        information = self._information(*examples, key).numpy().astype(np.float64)
        precision = information / self._temperature + inference.initial_standard_deviation**-2
        return replace(posterior, variance=(1.0 / precision).astype(np.float32))

    def forward(self, images: Any, key: Any) -> Pass:
        """Return a pass over images in training mode, its random draws keyed by ``key`` (2,)."""
        with tf.GradientTape() as tape:
            logits = self.network.logits(images, key, training=True)
        return Pass(tape, logits)

    def learn(
        self,
        passed: Pass,
        batch: Batch,
        number: Any,
        rate: Any,
        soft_labels: SoftLabels | None = None,
    ) -> Any:
        """Make a step from a pass over a batch; return what was measured, see ``gradients``."""
        optimized = self.optimized
        if not optimized.optimizer.separate_gradients:
            gradients, measured = self.gradients(passed, batch, soft_labels)
            self.step(gradients, number, rate)
            return measured
        with passed.tape:
            step = Step(self.network, passed.logits, batch.labels, batch.weights, soft_labels)
            summed, _ = self._values(step, batch.count)
            mean = summed / present(batch.weights)
        gradients = self._gradient(passed.tape, mean)
        rests, shared = self.shared_gradients(batch.count)
        trained = [
            replace(variable, rest=rest, examples=batch.count / self._temperature)
            for variable, rest in zip(optimized.trained, rests, strict=True)
        ]
        optimized.optimizer.step(trained, gradients, optimized.steps_before + number, rate)
        return tf.concat([[step.negative_log_likelihood, summed], shared], axis=0)

    def step(self, gradients: list[Any], number: Any, rate: Any) -> None:
        """Make a step along gradients, inside the graph."""
        if self.offsets:
            gradients = self.offsets.add(self.optimized.variables, gradients)
        self.optimized.step(gradients, number, rate)

    def gradients(
        self, passed: Pass, batch: Batch, soft_labels: SoftLabels | None = None
    ) -> tuple[list[Any], Any]:
        """Return the gradient of the objective per example on one batch, and what was measured.

        That is (4,): the summed NLL, the sum of the terms' values over the batch's examples, the
        divergence, and the sum of what the terms' values have besides the examples.
        """
        with passed.tape:
            step = Step(self.network, passed.logits, batch.labels, batch.weights, soft_labels)
            summed, shared = self._values(step, batch.count)
            objective = summed / present(batch.weights) + shared / batch.count
            measured = [step.negative_log_likelihood, summed, step.divergence, shared]
        return passed.tape.gradient(objective, self.optimized.variables), tf.stack(measured)

    def example_gradients(self, batch: Batch, key: Any) -> tuple[list[Any], Any]:
        """Return the gradient of what the objective sums over a batch's examples alone.

        Measured are (2,): their summed NLL, and the sum of the terms' values over them.
        """
        passed = self.forward(batch.images, key)
        with passed.tape:
            step = Step(self.network, passed.logits, batch.labels, batch.weights)
            summed, _ = self._values(step, batch.count)
        return self._gradient(passed.tape, summed), tf.stack([step.negative_log_likelihood, summed])

    def shared_gradients(self, count: Any) -> tuple[list[Any], Any]:
        """Return the gradient per example of what the objective has besides any examples.

        Measured are (2,): the divergence, and the sum of what terms have besides the examples.
        """
        with tf.GradientTape() as tape:
            self.network.take_deviations()
            nobody = tf.zeros([0, self.network.classes]), tf.zeros([0], tf.int32), tf.zeros([0])
            step = Step(self.network, *nobody)
            _, shared = self._values(step, count)
            objective = shared / count
        return self._gradient(tape, objective), tf.stack([step.divergence, shared])

    def _values(self, step: Step, count: Any) -> tuple[Any, Any]:
        pairs = zip(self.terms, self._inputs, strict=True)
        values = [term.value(step, inputs, count) for term, inputs in pairs]
        summed = [value.summed for value in values if value.summed is not None]
        shared = [value.shared for value in values if value.shared is not None]
        if self._temperature != 1.0:
            shared = [self._temperature * one for one in shared]
        return _sum(summed), _sum(shared)

    def _gradient(self, tape: Any, objective: Any) -> list[Any]:
        zero = tf.UnconnectedGradients.ZERO
        variables = self.optimized.variables
        return list(tape.gradient(objective, variables, unconnected_gradients=zero))


def _sum(values: list[Any]) -> Any:
    return sum(values[1:], start=values[0]) if values else tf.zeros([])


class OptimizedVariables:
    """A network's trainable variables, their slots, and the number of steps these have seen.

    Attributes:
        steps_before: The number of steps before a task's first one, a variable ().
        run_steps: How many steps the client makes in the whole run, a variable ().
    """

    def __init__(self, network: Network, optimizer: Optimizer, *, with_scales: bool = True) -> None:
        self.optimizer = optimizer
        scales = {id(variable) for variable in network.untransformed_scales}
        trainable = network.trainable_variables
        self.variables = [v for v in trainable if with_scales or id(v) not in scales]
        kernels = {id(variable) for variable in network.kernels}
        scale_of = {
            id(m): s for m, s in zip(network.means, network.untransformed_scales, strict=True)
        }
        self.steps_before = tf.Variable(0, trainable=False)
        self.run_steps = tf.Variable(1.0, trainable=False)
        self.trained = [
            TrainedVariable(
                variable,
                tuple(tf.Variable(tf.zeros_like(variable)) for _ in optimizer.slots),
                scale=id(variable) in scales,
                kernel=id(variable) in kernels,
                untransformed_scale=scale_of.get(id(variable)),
                initial_scale=network.inference.initial_standard_deviation,
                run_steps=self.run_steps,
            )
            for variable in self.variables
        ]

        def set_to_zero() -> None:
            self.steps_before.assign(0)
            for slot in (slot for trained in self.trained for slot in trained.slots):
                slot.assign(tf.zeros_like(slot))

        # One call for all of them: of a client with few steps it is a good part of the time.
        self._empty = tf.function(set_to_zero, input_signature=[], autograph=False)

    def begin(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Set the slots to what an earlier ``state`` was; to 0 if it is empty."""
        if not state:
            self._empty()
            return
        self.steps_before.assign(int(state["steps"]))
        for index, name in enumerate(self.optimizer.slots):
            for trained, part in zip(self.trained, self.split(state[name]), strict=True):
                trained.slots[index].assign(part)

    def step(self, gradients: Sequence[Any], number: Any, rate: Any) -> None:
        """Change the variables and their slots by one step, inside the graph."""
        self.optimizer.step(self.trained, gradients, self.steps_before + number, rate)

    def split(self, joined: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Return a vector over all trainable variables as one array for each, in its shape."""
        sizes = [variable.shape.num_elements() for variable in self.variables]
        parts = np.split(joined, np.cumsum(sizes)[:-1])
        return [part.reshape(v.shape) for part, v in zip(parts, self.variables, strict=True)]

    def state(self, steps: int) -> dict[str, npt.NDArray[Any]]:
        """Return the slots by their names, each as one vector, and the number of steps."""
        joined = {
            name: np.concatenate([trained.slots[index].numpy().ravel() for trained in self.trained])
            for index, name in enumerate(self.optimizer.slots)
        }
        return {**joined, "steps": np.array(int(self.steps_before.numpy()) + steps)}


class Offsets:
    """Offsets that a correction adds to the gradients of means and point values, in variables."""

    def __init__(self, network: Network) -> None:
        trained = {id(variable) for variable in network.trainable_variables}
        self._places = [place for place in network.places() if id(place[0]) in trained]
        self._variables: Mapping[int, Any] = {
            id(variable): tf.Variable(tf.zeros_like(variable), trainable=False)
            for variable, _, _ in self._places
        }

    def assign(self, offsets: Arrays) -> None:
        """Set the offsets to those of a task: ``mean`` (D,) and ``point`` (P,)."""
        for variable, name, place in self._places:
            part = offsets[name][place].reshape(variable.shape)
            self._variables[id(variable)].assign(part)

    def add(self, variables: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """Return gradients with the offsets added; untransformed scales have none."""
        offsets = (self._variables.get(id(variable)) for variable in variables)
        pairs = zip(offsets, gradients, strict=True)
        return [gradient if offset is None else gradient + offset for offset, gradient in pairs]


PARTS = 64  # of a client's examples, about, or more: the fewer, the noisier are fitted variances


def fisher_information(network: Network) -> Callable[..., Any]:
    """Return a graph for Σ_n w_n E_y[(∂ log p(y | x_n) / ∂μ)²] of a network's means μ, (D,).

    It takes images (N, H, W, C), labels (N,), positions (P, B) of P parts of the examples, their
    weights w (P, B), and a key (2,). y is as the network predicts: by the labels the sum would be
    near 0 once they are learnt. One pass estimates it, as the sum over the parts of

        (∂/∂μ Σ_n √w_n Σ_y s_ny √p(y | x_n) log p(y | x_n))², √p held fixed.

    The signs s are drawn. Products of two are 0 on average, so there is no bias; of P parts that
    say alike the relative deviation is at most √(2/P).
    """

    def information(images: Any, labels: Any, order: Any, weights: Any, key: Any) -> Any:
        def add(total: Any, part: tuple[Any, Any, Any]) -> Any:
            positions, root, seed = part
            with tf.GradientTape() as tape:
                taken = normalized_images(tf.gather(images, positions))
                outputs = network.logits(taken, seed, training=False)
                if labels.dtype.is_floating:  # numbers: see ``Step``
                    variance = tf.nn.softplus(outputs[:, 1]) + LEAST_NOISE
                    mean = outputs[:, 0] * tf.stop_gradient(tf.math.rsqrt(variance))
                    scores = tf.stack([mean, tf.sqrt(0.5) * tf.math.log(variance)], axis=-1)
                else:
                    logarithms = tf.nn.log_softmax(outputs)
                    scores = tf.stop_gradient(tf.exp(0.5 * logarithms)) * logarithms
                signs = tfp.random.rademacher(tf.shape(scores), dtype=tf.float32, seed=seed)
                value = tf.reduce_sum(root[:, tf.newaxis] * signs * scores)
            gradients = tape.gradient(value, network.means)
            return total + tf.square(tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0))

        parts = order, tf.sqrt(weights), split(key, tf.shape(order)[0])
        return tf.foldl(add, parts, tf.zeros([network.manifest.gaussian_size]))

    order, weights = (tf.TensorSpec([None, None], t) for t in (tf.int32, tf.float32))
    key = tf.TensorSpec([2], tf.int32)
    return of_images(information, network, None, order, weights, key, autograph=False)


def batches(
    count: int, batch_size: int, epochs: int, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return positions (E·⌈N/B⌉, B) into N examples of E epochs, and their weights, 1 or 0.

    Every epoch is a permutation. All batches have one size, so that the training step is traced
    once: the last batch is filled up with the epoch's first examples at weight 0, which take part
    in batch normalisation's statistics but not in the loss.
    """
    orders = [generator.permutation(count) for _ in range(epochs)]
    filled = [filled_batches(order, batch_size) for order in orders]
    return np.concatenate([o for o, _ in filled]), np.concatenate([w for _, w in filled])


def filled_batches(
    order: npt.NDArray[np.integer], batch_size: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return one visit of examples in an order, as ``batches`` does."""
    steps = -(-order.size // batch_size)
    weights = np.zeros(steps * batch_size, np.float32)
    weights[: order.size] = 1.0
    positions = np.resize(order, steps * batch_size).astype(np.int32)
    return positions.reshape(steps, batch_size), weights.reshape(steps, batch_size)
