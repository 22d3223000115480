"""Optimizers of local training: the state besides every variable, and the step of both."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from bfl.registry import Component, Registry


@dataclass(frozen=True)
class TrainedVariable:
    """A variable that training changes, with what the optimizer keeps beside it.

    Attributes:
        slots: One variable of its shape for each of the optimizer's ``slots``; all begin at 0.
        scale: Whether it holds untransformed scales ρ, and not means or point values.
        kernel: Whether it holds a kernel, or its means: no bias, nor normalisation.
        untransformed_scale: Of means, the variable that holds their untransformed scales.
        rest: With ``separate_gradients``, in a step: the gradient per example of what the objective
            has besides the examples, such as KL[q ‖ p].
        examples: For the same, how many examples the likelihood counts.
        initial_scale: Of means, the standard deviation with which a run begins.
        run_steps: How many steps the client makes in the whole run, a float32 variable ().
    """

    variable: Any
    slots: tuple[Any, ...]
    scale: bool = False
    kernel: bool = False
    untransformed_scale: Any = None
    rest: Any = 0.0
    examples: Any = 1.0
    initial_scale: float = 1.0
    run_steps: Any = 1.0


Trained = Sequence[TrainedVariable]
Tensors = Sequence[Any]


class Optimizer(Component):
    """A way of changing variables along their gradients."""

    slots: ClassVar[tuple[str, ...]] = ()  # vectors that it keeps besides the variables, by name
    separate_gradients: ClassVar[bool] = False  # whether a step takes that of the rest by itself

    def depends_on_rounds(self) -> bool:
        """Return whether a step depends on how many rounds the run is to have."""
        return False

    def warnings(self, run_steps: int) -> list[str]:
        """Return warnings of a run in which a client makes at most so many steps."""
        return []

    def regularize(self, variables: Trained, gradients: Tensors) -> list[Any]:
        """Return the gradients with what the optimizer adds, such as weight decay."""
        return list(gradients)

    @abstractmethod
    def step(self, variables: Trained, gradients: Tensors, steps_before: Any, rate: Any) -> None:
        """Change the variables and their slots by one step, inside a traced graph.

        Args:
            gradients: The objective's gradient by each of the variables, tensors of their shapes.
            steps_before: How many steps the slots have seen, an int32 tensor ().
            rate: The learning rate η, a float32 tensor ().
        """


optimizers: Registry[Optimizer] = Registry("optimizer", "bfl.learning.optimizers")


class CoupledWeightDecay(Optimizer):
    """Adds λ θ to the gradient, g ← g + λ θ, before anything else is done with it.

    PyTorch lets all parameters decay, which would pull ρ to 0 and σ to softplus(0) = 0.69. So by
    default only means and point values decay (``weight-decay-of``); "kernels" spares biases and
    normalisation, as FedBE's code does.

    Source: ``weight_decay`` of PyTorch's ``torch.optim.SGD`` and ``torch.optim.Adam``.
    """

    weight_decay: float = Field(0.0, ge=0.0, le=1.0)
    """multiple of the weights that is added to their gradient"""
    weight_decay_of: Literal["kernels", "values", "everything"] = "values"
    """what decays: kernels, or all means and point values, or untransformed scales as well"""

    def regularize(self, variables: Trained, gradients: Tensors) -> list[Any]:
        """Return the gradients with weight decay, g + λ θ."""
        if not self.weight_decay:
            return list(gradients)
        decayed = []
        for trained, gradient in zip(variables, gradients, strict=True):
            decays = {"kernels": trained.kernel, "values": not trained.scale, "everything": True}
            if decays[self.weight_decay_of]:
                gradient = gradient + self.weight_decay * trained.variable
            decayed.append(gradient)
        return decayed


@optimizers.register("adam")
class Adam(CoupledWeightDecay):
    """Steps along the mean gradient, divided by the root of the mean squared gradient.

    m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², and with t the number of the step, from 1,

        θ ← θ − η √(1 − β₂ᵗ) / (1 − β₁ᵗ) · m / (√v + ε).

    Source: Kingma and Ba (2015), the form at the end of section 2; Fischer et al. (2024), section
    3.3. Both leave β₁, β₂ and ε to the implementation: these are Keras' defaults. Weight decay, of
    which there is none by default, goes into g and so into both moments, as in PyTorch's Adam.
    """

    slots: ClassVar[tuple[str, ...]] = ("first-moment", "second-moment")

    BETA1: ClassVar[float] = 0.9
    BETA2: ClassVar[float] = 0.999
    EPSILON: ClassVar[float] = 1e-7

    def step(self, variables: Trained, gradients: Tensors, steps_before: Any, rate: Any) -> None:
        """Change the variables by TensorFlow's fused kernel; see ``Optimizer.step``."""
        from bfl.keras import tf

        power = tf.cast(steps_before + 1, tf.float32)
        beta1_power, beta2_power = self.BETA1**power, self.BETA2**power
        decayed = self.regularize(variables, gradients)
        for trained, gradient in zip(variables, decayed, strict=True):
            first, second = trained.slots
            tf.raw_ops.ResourceApplyAdam(
                var=trained.variable.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=rate,
                beta1=self.BETA1,
                beta2=self.BETA2,
                epsilon=self.EPSILON,
                grad=gradient,
            )


@optimizers.register("stochastic-gradient-descent", aliases=("sgd",))
class StochasticGradientDescent(CoupledWeightDecay):
    """Steps along the gradient, with momentum and weight decay.

    g ← g + λ θ, v ← m v + g, θ ← θ − η v, with λ the weight decay and m the momentum: PyTorch's
    formulas, in which a change of the rate η acts at once on the whole velocity v.

    Source: Ozer et al. (2022), section 4: "Stochastic Gradient Descent (SGD) with the parameters
    0.01 for learning rate, 0.9 for momentum, and 10⁻⁵ for weight decay"; their code leaves it to
    PyTorch's ``torch.optim.SGD``. Sutskever et al. (2013) for the momentum.
    """

    slots: ClassVar[tuple[str, ...]] = ("velocity",)

    momentum: float = Field(0.9, ge=0.0, lt=1.0)
    """share of the velocity that a step keeps"""
    weight_decay: float = Field(1e-5, ge=0.0, le=1.0)
    """multiple of the weights that is added to their gradient"""

    def has(self) -> frozenset[str]:
        """Return whether each step is the rate times the gradient."""
        return frozenset() if self.momentum else frozenset({"plain-steps"})

    def step(self, variables: Trained, gradients: Tensors, steps_before: Any, rate: Any) -> None:
        """Change the variables by TensorFlow's fused kernel; see ``Optimizer.step``."""
        from bfl.keras import tf

        decayed = self.regularize(variables, gradients)
        for trained, gradient in zip(variables, decayed, strict=True):
            (velocity,) = trained.slots
            # Not ResourceApplyKerasMomentum, whose velocity holds the rates of the past.
            tf.raw_ops.ResourceApplyMomentum(
                var=trained.variable.handle,
                accum=velocity.handle,
                lr=rate,
                grad=gradient,
                momentum=self.momentum,
            )
