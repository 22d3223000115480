"""The proximal term: a client is held near what it has received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from bfl.federation.parts import Arrays
from bfl.learning.objectives.base import Step, Term, Value, objectives
from bfl.posteriors import Manifest, Posterior


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

    With µ = 0 nothing is computed.

    Source: Li et al. (2020), "Federated optimization in heterogeneous networks", Eq. 2, for points.
    """

    proximal_mu: float = Field(
        0.01, ge=0.0, le=1e6, description="how firmly a client is held near what it has received"
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
        """Return µ (KL[q ‖ q_received] + N/2 ‖w − w_received‖²)."""
        from bfl.keras import tf

        divergence = step.network.divergence_from(inputs["mean"], inputs["scale"])
        shift = step.network.trainable_points() - inputs["point"]
        distance = 0.5 * examples * tf.reduce_sum(tf.square(shift))
        return Value(shared=self.proximal_mu * (divergence + distance))
