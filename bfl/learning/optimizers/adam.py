"""Adam: steps of a size that the gradients' own history sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from bfl.learning.optimizers.base import TrainedVariable, optimizers
from bfl.learning.optimizers.weight_decay import CoupledWeightDecay


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

    def step(
        self,
        variables: Sequence[TrainedVariable],
        gradients: Sequence[Any],
        steps_before: Any,
        rate: Any,
    ) -> None:
        """Change the variables by TensorFlow's fused kernel; see ``Optimizer.step``."""
        from bfl.keras import tf

        power = tf.cast(steps_before + 1, tf.float32)
        beta1_power, beta2_power = self.BETA1**power, self.BETA2**power
        decayed = self.regularized(variables, gradients)
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
