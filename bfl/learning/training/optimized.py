"""A network's trainable variables with what an optimizer keeps besides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.keras import tf
from bfl.learning.networks.network import Network
from bfl.learning.optimizers import Optimizer, TrainedVariable


class OptimizedVariables:
    """A network's trainable variables, their slots, and the number of steps these have seen.

    Args:
        network: The network.
        optimizer: What a step does with the gradient.

    Attributes:
        variables: The network's trainable variables.
        trained: The same with their slots.
        steps_before: The number of steps before a task's first one, a variable ().
    """

    def __init__(self, network: Network, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.variables = network.trainable_variables
        scales = {id(variable) for variable in network.untransformed_scales}
        kernels = {id(variable) for variable in network.kernels}
        self.trained = [
            TrainedVariable(
                variable,
                tuple(tf.Variable(tf.zeros_like(variable)) for _ in optimizer.slots),
                scale=id(variable) in scales,
                kernel=id(variable) in kernels,
            )
            for variable in self.variables
        ]
        self.steps_before = tf.Variable(0, trainable=False)
        # One call for all of them: of a client with few steps it is a good part of the time.
        self._empty = tf.function(self._set_to_zero, input_signature=[], autograph=False)

    def begin(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Set the slots to what an earlier ``state`` was; to 0 if it is empty."""
        if not state:
            self._empty()
            return
        self.steps_before.assign(int(state["steps"]))
        for index, name in enumerate(self.optimizer.slots):
            for trained, part in zip(self.trained, self.split(state[name]), strict=True):
                trained.slots[index].assign(part)

    def _set_to_zero(self) -> None:
        self.steps_before.assign(0)
        for trained in self.trained:
            for slot in trained.slots:
                slot.assign(tf.zeros_like(slot))

    def step(self, gradients: Sequence[Any], number: Any, rate: Any) -> None:
        """Change the variables and their slots by one step, inside the graph.

        Args:
            gradients: One for each variable.
            number: How many steps of the task there were before.
            rate: The learning rate.
        """
        self.optimizer.step(self.trained, gradients, self.steps_before + number, rate)

    def split(self, joined: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Return a vector over all trainable variables as one array for each, in its shape."""
        sizes = [variable.shape.num_elements() for variable in self.variables]
        parts = np.split(joined, np.cumsum(sizes)[:-1])
        return [part.reshape(v.shape) for part, v in zip(parts, self.variables, strict=True)]

    def state(self, steps: int) -> dict[str, npt.NDArray[Any]]:
        """Return the slots by their names, each as one vector, and the number of steps.

        Args:
            steps: How many steps the task has made.
        """
        joined = {
            name: np.concatenate([trained.slots[index].numpy().ravel() for trained in self.trained])
            for index, name in enumerate(self.optimizer.slots)
        }
        return {**joined, "steps": np.array(int(self.steps_before.numpy()) + steps)}
