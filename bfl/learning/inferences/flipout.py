"""Variational inference: a Gaussian over every weight and bias, trained with Flipout."""

from __future__ import annotations

from bfl.learning.inferences.base import Layer, Padding, inferences
from bfl.learning.inferences.variational import VariationalInference


@inferences.register("flipout", aliases=("variational",))
class Flipout(VariationalInference):
    """Variational inference: a Gaussian over every weight and bias, trained with Flipout.

    The layers are TensorFlow Probability's, with random numbers that are keyed instead of stateful.

    Source: Wen et al. (2018); Fischer et al. (2024), section 3.2, Fig. 1 (c). The papers are silent
    on the initial standard deviation; the default is about that of TensorFlow Probability's layers
    (σ = softplus(−3) = 0.049).
    """

    def variational_convolution(
        self, filters: int, kernel_size: int, *, strides: int, name: str, padding: Padding
    ) -> Layer:
        """Return TensorFlow Probability's Flipout convolution."""
        from bfl.learning.networks.layers import KeyedConvolution2DFlipout

        return KeyedConvolution2DFlipout(
            filters, kernel_size, strides=strides, padding=padding, name=name, form=self.form
        )

    def dense(self, units: int, *, name: str, output: bool = False) -> Layer:
        """Return TensorFlow Probability's dense Flipout layer."""
        from bfl.learning.networks.layers import KeyedDenseFlipout

        return KeyedDenseFlipout(units, name=name, form=self.form)
