"""The proximal term: a client is held near what it has received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from bfl.federation.parts import Arrays
from bfl.learning.objectives.base import Step, Term, Value, objectives
from bfl.posteriors import Manifest, Posterior

WEIGHTS = ("/kernel", "/scale")
"""How the names of tensors end that PyTorch calls weights."""


@objectives.register("proximal")
class Proximal(Term):
    """Holds a client near what it has received: a distance times ``proximal-mu`` = µ.

    - Point values that training moves by their gradient: µ/2 ‖w − w_received‖² beside the mean loss
      per example, as in the paper. Moving statistics are not held.
    - Gaussians: µ KL[q ‖ q_received] beside the sum of the losses, so µ KL / N per example, the
      scale on which the prior stands: KL[q ‖ p] + µ KL[q ‖ q_received] is, up to a constant, 1 + µ
      times the divergence from the geometric mean of p and of q_received to the power µ. So µ says
      how often the received posterior counts where the prior counts once. For a mean it is the
      paper's term with µ / (N σ_received²) in place of µ: certain weights are held more firmly.

    With µ = 0 nothing is computed. With ``proximal-distance`` = "norms" points have µ/2 Σ_t
    ‖w_t − w_t,received‖ instead, norms that are not squared, over the kernels and normalisation's
    scales w_t one by one; biases and offsets are not held. It pulls as strongly from near as from
    far; where a tensor has not moved, its gradient is 0.

    Source: Li et al. (2020), "Federated optimization in heterogeneous networks", Eq. 2, for points;
    FedBE's published code, ``SWAGLocalUpdate.reg_loss``, for norms.
    """

    proximal_mu: float = Field(
        0.01, ge=0.0, le=1e6, description="how firmly a client is held near what it has received"
    )
    proximal_distance: Literal["squared", "norms"] = Field(
        "squared",
        description="what of points' distance from what was received is made small: its square, "
        "or the norms of kernels and normalisation's scales, as in FedBE's code",
    )

    @property
    def active(self) -> bool:
        """Whether µ is not 0."""
        return self.proximal_mu > 0

    def requires(self) -> frozenset[str]:
        """Return that variances are received, unless nothing is computed."""
        return frozenset({"sent-variances"}) if self.active else frozenset()

    def inputs(self, manifest: Manifest, received: Posterior) -> Arrays:
        """Return the received Gaussians, and the received points that training moves."""
        return {
            "mean": received.mean,
            "scale": np.sqrt(received.variance),
            "point": received.point[manifest.trainable_points],
        }

    def value(self, step: Step, inputs: Mapping[str, Any], examples: Any) -> Value:
        """Return µ (KL[q ‖ q_received] + N/2 ‖w − w_received‖²), or with norms."""
        from bfl.keras import tf

        divergence = step.network.divergence_from(inputs["mean"], inputs["scale"])
        shift = step.network.trainable_points() - inputs["point"]
        if self.proximal_distance == "norms":
            far = _sum_of_norms(shift, step.network.manifest)
        else:
            far = tf.reduce_sum(tf.square(shift))
        distance = 0.5 * examples * far
        return Value(shared=self.proximal_mu * (divergence + distance))


def _sum_of_norms(shift: Any, manifest: Manifest) -> Any:
    """Return Σ_t ‖shift_t‖ over kernels and scales t of trainable point parameters."""
    from bfl.keras import tf

    moved = [parameter for parameter in manifest.point if parameter.trainable]
    total = tf.zeros([])
    for parameter, part in zip(moved, tf.split(shift, [p.size for p in moved]), strict=True):
        if parameter.name.endswith(WEIGHTS):
            squared = tf.reduce_sum(tf.square(part))
            # A root has no finite gradient at 0, where every round begins.
            root = tf.sqrt(tf.where(squared > 0, squared, 1.0))
            total += tf.where(squared > 0, root, 0.0)
    return total
