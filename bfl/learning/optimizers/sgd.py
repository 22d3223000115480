"""Stochastic gradient descent with momentum and weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from bfl.learning.optimizers.base import Optimizer, TrainedVariable, optimizers


@optimizers.register("stochastic-gradient-descent", aliases=("sgd",))
class StochasticGradientDescent(Optimizer):
    """Steps along the gradient, with momentum and weight decay.

    g ← g + λ θ, v ← m v + g, θ ← θ − η v, with λ the weight decay and m the momentum: PyTorch's
    formulas, in which a change of the rate η acts at once on the whole velocity v.

    PyTorch lets all parameters decay. Of a mean-field Gaussian, that would pull ρ to 0 and σ to
    softplus(0) = 0.69, and a log-variance to σ = 1: it depends on the parametrisation, and the
    divergence from the prior is there for it already. So by default only means and point values
    decay (kernels, biases, normalisation's scales and offsets); ``weight-decay-of`` = "everything"
    lets ρ decay as well, and "kernels" spares biases and normalisation, as FedBE's code does.

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
    weight_decay_of: Literal["kernels", "values", "everything"] = Field(
        "values",
        description="what decays: kernels, or all means and point values, or untransformed scales "
        "as well",
    )

    def has(self) -> frozenset[str]:
        """Return whether each step is the rate times the gradient."""
        return frozenset() if self.momentum else frozenset({"plain-steps"})

    def regularized(
        self, variables: Sequence[TrainedVariable], gradients: Sequence[Any]
    ) -> list[Any]:
        """Return the gradients with weight decay, g + λ θ."""
        return [
            gradient + self.weight_decay * trained.variable if self._decays(trained) else gradient
            for trained, gradient in zip(variables, gradients, strict=True)
        ]

    def _decays(self, trained: TrainedVariable) -> bool:
        decays = {"kernels": trained.kernel, "values": not trained.scale, "everything": True}
        return self.weight_decay > 0 and decays[self.weight_decay_of]

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
