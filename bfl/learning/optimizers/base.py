"""What an optimizer is: what it keeps beside every variable, and how one step changes both."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bfl.registry import Component, Registry


@dataclass(frozen=True)
class TrainedVariable:
    """A variable that training changes, with what the optimizer keeps beside it.

    Attributes:
        variable: The TensorFlow variable.
        slots: One variable of its shape for each of the optimizer's ``slots``; all begin at 0.
        scale: Whether it holds untransformed scales ρ (σ = ε + softplus(ρ)), and not means or
            point values.
        kernel: Whether its values are those of a kernel, or their means: not of a bias, nor of
            normalisation.
    """

    variable: Any
    slots: tuple[Any, ...]
    scale: bool = False
    kernel: bool = False


class Optimizer(Component):
    """A way of changing variables along their gradients."""

    slots: ClassVar[tuple[str, ...]] = ()
    """Names of the vectors that it keeps beside the variables, from step to step; a client with
    ``optimizer-state="keep"`` stores them under these names."""

    def regularized(
        self, variables: Sequence[TrainedVariable], gradients: Sequence[Any]
    ) -> list[Any]:
        """Return the gradients with what the optimizer itself adds to the objective's.

        A plain step goes along them: to a method that reckons with gradients, weight decay is a
        part of the gradient.
        """
        return list(gradients)

    @abstractmethod
    def step(
        self,
        variables: Sequence[TrainedVariable],
        gradients: Sequence[Any],
        steps_before: Any,
        rate: Any,
    ) -> None:
        """Change the variables and their slots by one step, inside a traced graph.

        Args:
            variables: The variables.
            gradients: The objective's gradient by each of them, tensors of their shapes.
            steps_before: How many steps the slots have seen, an int32 tensor ().
            rate: The learning rate η, a float32 tensor ().
        """


optimizers: Registry[Optimizer] = Registry("optimizer", "bfl.learning.optimizers")
