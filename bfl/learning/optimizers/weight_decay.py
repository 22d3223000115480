"""Weight decay as a part of the gradient, PyTorch's; optimizers derive from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from bfl.learning.optimizers.base import Optimizer, TrainedVariable


class CoupledWeightDecay(Optimizer):
    """Adds λ θ to the gradient, g ← g + λ θ, before anything else is done with it.

    PyTorch lets all parameters decay. Of a mean-field Gaussian, that would pull ρ to 0 and σ to
    softplus(0) = 0.69, and a log-variance to σ = 1: it depends on the parametrisation, and the
    divergence from the prior is there for it already. So by default only means and point values
    decay (kernels, biases, normalisation's scales and offsets); ``weight-decay-of`` = "everything"
    lets ρ or log-variances decay as well, and "kernels" spares biases and normalisation, as FedBE's
    code does.

    Source: ``weight_decay`` of PyTorch's ``torch.optim.SGD`` and ``torch.optim.Adam``.
    """

    weight_decay: float = Field(
        0.0, ge=0.0, le=1.0, description="multiple of the weights that is added to their gradient"
    )
    weight_decay_of: Literal["kernels", "values", "everything"] = Field(
        "values",
        description="what decays: kernels, or all means and point values, or untransformed scales "
        "as well",
    )

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
