"""Differentially private stochastic gradient descent: flat clipping of each example's gradient."""

from __future__ import annotations

from typing import Any

from bfl.learning.example_privacy.base import PrivateGradients, example_privacies


@example_privacies.register("differentially-private-sgd", aliases=("dp-sgd",))
class DifferentiallyPrivateSgd(PrivateGradients):
    """Each example's gradient g becomes g min(1, C / ‖g‖), and their sum gets N(0, (z C)²).

    What the optimizer makes of it, momentum and Adam included, is no further release.

    Source: Abadi et al. (2016), "Deep learning with differential privacy", Algorithm 1, whose lots
    are drawn as here, over the expected size of a batch.
    """

    def factor(self, norm: Any) -> Any:
        """Return min(1, C / ‖g‖)."""
        from bfl.keras import tf

        return self.example_clip_norm / tf.maximum(norm, self.example_clip_norm)
