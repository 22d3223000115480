"""Improved variational online Newton (IVON): the layers, with one draw of weights a batch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bfl.learning.inferences import Layers, VariationalInference, inferences
from bfl.learning.networks.parametrizations import Parametrization, RelativePrecision


@inferences.register("ivon", aliases=("improved-variational-online-newton",))
class ImprovedVariationalOnlineNewton(VariationalInference):
    """A Gaussian over every weight and bias, with one draw of all weights a batch.

    A step takes one convolution a layer, as with points, and two with Flipout. It goes with the
    optimizer of the same name, whose estimate of the Hessian is the posterior's precision.

    Clients begin at h₀ = 1/(λ ``initial-scale``²) − δ; see the optimizer.

    Source: Shen et al. (2024), "Variational learning is effective for large deep networks",
    Algorithm 1; Pal et al. (2025), FedIvon, for a federation.
    """

    initial_scale: float = Field(
        0.014, gt=1e-6, le=10.0, description="standard deviation that every weight begins with"
    )
    likelihood_examples: Literal["federation", "client"] = Field(
        "federation",
        description="whose training examples a client's likelihood counts, λ: all clients', for "
        "pools by shares, or its own, for pools of products",
    )

    def has(self) -> frozenset[str]:
        """Return that networks hold precisions, and whose examples the likelihood counts."""
        own = {"own-likelihood"} if self.likelihood_examples == "client" else set()
        return super().has() - {"own-likelihood"} | {"held-precisions"} | own

    def requires(self) -> frozenset[str]:
        """Return what moves precisions, as well."""
        return super().requires() | {"newton-steps"}

    @property
    def counts_all_examples(self) -> bool:
        """True if λ is the number of all clients' training examples."""
        return self.likelihood_examples == "federation"

    @property
    def parametrization(self) -> Parametrization:
        """Precisions in units of the initial one."""
        return RelativePrecision(self.initial_scale)

    def layers(self) -> Layers:
        """Return layers with one draw of their weights a batch."""
        from bfl.learning.networks.layers import DrawnConvolution2D, DrawnDense

        return DrawnConvolution2D, DrawnDense
