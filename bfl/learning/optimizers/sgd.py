"""Stochastic gradient descent with momentum and weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from bfl.learning.optimizers.base import TrainedVariable, optimizers
from bfl.learning.optimizers.weight_decay import CoupledWeightDecay


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

    momentum: float = Field(
        0.9, ge=0.0, lt=1.0, description="share of the velocity that a step keeps"
    )
    weight_decay: float = Field(
        1e-5, ge=0.0, le=1.0, description="multiple of the weights that is added to their gradient"
    )

    def has(self) -> frozenset[str]:
        """Return whether each step is the rate times the gradient."""
        return frozenset() if self.momentum else frozenset({"plain-steps"})

    def step(
        self,
        variables: Sequence[TrainedVariable],
        gradients: Sequence[Any],
        steps_before: Any,
        rate: Any,
    ) -> None:
        """Change the variables by TensorFlow's fused kernel; see ``Optimizer.step``."""
        from bfl.keras import tf

        decayed = self.regularized(variables, gradients)
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
