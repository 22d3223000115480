"""Variational layers whose outputs are drawn, instead of their weights, keyed like the others."""

from __future__ import annotations

from typing import Any

from bfl.keras import tf, tfp
from bfl.learning.networks.keys import next_seed
from bfl.learning.networks.layers import VariationalLayer

LEAST_VARIANCE = 1e-8
"""Variance of a bias that is a point; as in the code of Ozer et al."""

SMALLEST_VARIANCE = 1e-36
"""Least variance of an output: far below any that a float32 mean would show."""


class LocallyReparameterizedLayer(VariationalLayer):
    """A variational layer that draws its outputs, each by itself, from their Gaussian.

    The mean and the variance of an output are linear in the inputs x and in x²: x μ + μ_b and
    x² σ² + σ_b². The biases are part of them, so an output takes one draw.

    Source: Kingma et al. (2015), section 2.3, Eq. 6.
    """

    def call(self, inputs: Any) -> Any:
        """Return the layer's outputs for inputs (N, ..., C), drawn anew for every call."""
        kernel, bias = (p.distribution for p in (self.kernel_posterior, self.bias_posterior))
        self.take_deviations()
        kernel_variance, *bias_variances = (tf.square(s) for s in self.standard_deviations)
        bias_variance = bias_variances[0] if bias_variances else LEAST_VARIANCE
        inputs = tf.cast(inputs, self._activation_type)
        mean = self._linear(inputs, tf.cast(kernel.loc, inputs.dtype))
        variance = self._linear(tf.square(inputs), tf.cast(kernel_variance, inputs.dtype))
        # The second summand keeps the root away from 0, where it has no gradient, unless pooling
        # has brought all variances to the end of float32.
        drawn = tf.maximum(tf.cast(variance, tf.float32) + bias_variance, SMALLEST_VARIANCE)
        deviation = tf.sqrt(drawn)
        noise = tf.random.stateless_normal(tf.shape(mean), seed=next_seed())
        # Added here and not to the mean: TensorFlow's graph optimizer fails on a matrix product
        # with a bias, a sum and a ReLU after it.
        return mean + tf.cast(bias.loc + deviation * noise, inputs.dtype)

    def _linear(self, inputs: Any, kernel: Any) -> Any:
        """Return the layer's linear operation on inputs (N, ..., C), without a bias."""
        raise NotImplementedError


class ReparameterizedDense(
    LocallyReparameterizedLayer,
    tfp.layers.DenseLocalReparameterization,  # type: ignore[misc]
):
    """TensorFlow Probability's dense layer of drawn outputs, keyed, its bias drawn with them."""

    def _linear(self, inputs: Any, kernel: Any) -> Any:
        return tf.matmul(inputs, kernel)


class ReparameterizedConvolution2D(
    LocallyReparameterizedLayer,
    tfp.layers.Convolution2DReparameterization,  # type: ignore[misc]
):
    """A convolution of drawn outputs, keyed; TensorFlow Probability's draws the kernel instead.

    Outputs at two places are drawn independently, although they share weights.
    """

    def _linear(self, inputs: Any, kernel: Any) -> Any:
        return self._convolution_op(inputs, kernel)
