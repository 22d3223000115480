"""Adam on gradients that weight decay is a part of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from bfl.learning.optimizers.adam import Adam
from bfl.learning.optimizers.base import DecayingOptimizer, TrainedVariable, optimizers


@optimizers.register("adam-with-weight-decay")
class AdamWithWeightDecay(DecayingOptimizer):
    """Adam whose gradient is g + λ θ: weight decay as an L2 term, coupled, not AdamW's.

    It is what PyTorch's ``torch.optim.Adam(weight_decay=λ)`` does. A step does not see the scale of
    a gradient, so the decay counts by its size beside the loss: under a mean loss per example, as
    here, λ = 5e-4 is felt; beside the sum over all examples it would not be. What decays is said in
    ``DecayingOptimizer``: by default not the untransformed scales ρ.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem", section 5: "ADAM algorithm, with learning rate =
    0.001, weight_decay = 5×10⁻⁴", implemented in PyTorch.
    """

    slots: ClassVar[tuple[str, ...]] = Adam.slots

    def step(
        self,
        variables: Sequence[TrainedVariable],
        gradients: Sequence[Any],
        steps_before: Any,
        rate: Any,
    ) -> None:
        """Change the variables as Adam does along the regularized gradients."""
        Adam().step(variables, self.regularized(variables, gradients), steps_before, rate)
