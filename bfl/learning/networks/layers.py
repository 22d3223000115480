"""Keras layers whose random numbers are functions of a key, not of what the process did before.

A stateful random operation inside a cached ``tf.function`` keeps a counter of its own, so what a
client draws would depend on which clients the same process has served. These layers draw from
stateless operations instead, keyed by the innermost ``keyed(key)`` around the call.

A key is an int32 tensor (2,). It is used once: for one draw, or to make other keys by its hash
(Philox), never by its sum with a number: sums of keys meet again.

Activations may be in bfloat16. Parameters, the divergence, the loss and the optimiser stay in
float32, so what is sent and pooled has the same precision either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from bfl.keras import keras, tf, tfp
from bfl.learning.networks.parametrizations import SOFTPLUS, Parametrization
from bfl.posteriors.posterior import Initialization, Parameter


@dataclass(frozen=True)
class ParameterVariables:
    """The Keras variables behind one entry of a manifest.

    Attributes:
        value: The variable of the mean μ, or of the point value.
        untransformed_scale: The variable of ρ, σ = ε + softplus(ρ), or of log σ²; None for points.
    """

    name: str
    initialization: Initialization
    value: Any
    untransformed_scale: Any = None
    minimum: float | None = None

    @property
    def parameter(self) -> Parameter:
        """The manifest's entry."""
        return Parameter(
            name=self.name,
            shape=tuple(int(n) for n in self.value.shape),
            gaussian=self.untransformed_scale is not None,
            initialization=self.initialization,
            minimum=self.minimum,
            trainable=bool(self.value.trainable),
        )


LEAST_VARIANCE = 1e-8  # of a bias that is a point; as in the code of Ozer et al.
SMALLEST_VARIANCE = 1e-36  # of an output: far below any that a float32 mean would show


def _signs(shape: Any, dtype: Any) -> Any:
    return tfp.random.rademacher(shape, dtype=dtype, seed=next_seed())


@dataclass(frozen=True)
class Form:
    """Form of a variational layer's weights; with point biases the kernel alone is Gaussian."""

    parametrization: Parametrization = SOFTPLUS
    point_biases: bool = False
    initial_means: Initialization = "he-normal"
    drawn: bool = True  # or layers compute with the means


USUAL_FORM = Form()


class VariationalLayer:
    """Marks a TensorFlow Probability layer whose kernel is Gaussian, as is its bias, and keys it.

    The variables are TensorFlow Probability's, in float32; activations have the type of the policy
    under which the layer is made. The network computes the divergence, for all layers at once, from
    the standard deviations that the last call has left in ``standard_deviations``.
    """

    name: str
    kernel_posterior: Any
    bias_posterior: Any
    standard_deviations: tuple[Any, ...]

    def __init__(self, *args: Any, form: Form = USUAL_FORM, **kwargs: Any) -> None:
        self._activation_type = tf.as_dtype(keras.mixed_precision.global_policy().compute_dtype)
        self._form = form
        gaussian = form.parametrization.posterior_fn
        point = tfp.layers.default_mean_field_normal_fn(is_singular=True, loc_initializer="zeros")
        distributions: dict[str, Any] = {
            "kernel_posterior_fn": gaussian(),
            "bias_posterior_fn": point if form.point_biases else gaussian(),
            "kernel_prior_fn": None,
            "bias_prior_fn": None,
            "kernel_divergence_fn": None,
            "bias_divergence_fn": None,
        }
        # Variables stay what they are, and inputs come in the type that the layer before gives.
        kwargs |= {"dtype": "float32", "autocast": False}
        super().__init__(*args, **distributions, **kwargs)

    def parameters(self) -> list[ParameterVariables]:
        """Return the variables of the kernel and of the bias."""
        kernel, bias = self.kernel_posterior.distribution, self.bias_posterior.distribution
        scale = None if self._form.point_biases else bias.scale.pretransformed_input
        of_kernel = (kernel.loc, kernel.scale.pretransformed_input)
        return [
            ParameterVariables(f"{self.name}/kernel", self._form.initial_means, *of_kernel),
            ParameterVariables(f"{self.name}/bias", "zeros", bias.loc, scale),
        ]

    def take_deviations(self) -> None:
        """Leave what a call does: the deviations of the kernel and, if Gaussian, of the bias."""
        parts = (self.kernel_posterior, self.bias_posterior)
        gaussian = parts[:1] if self._form.point_biases else parts
        self.standard_deviations = tuple(
            tf.convert_to_tensor(part.distribution.scale) for part in gaussian
        )

    def call(self, inputs: Any) -> Any:
        """Return the layer's outputs for inputs (N, ..., C), drawn anew for every call."""
        self.take_deviations()
        inputs = tf.cast(inputs, self._activation_type)
        bias = self.bias_posterior.distribution.loc
        if self._form.drawn and not self._form.point_biases:
            bias = bias + _draw(self.standard_deviations[1])
        return self._apply_variational_kernel(inputs, tf.cast(bias, inputs.dtype))

    def _apply_variational_kernel(self, inputs: Any, bias: Any) -> Any:
        raise NotImplementedError

    def _kernel_mean(self, dtype: Any) -> Any:
        return tf.cast(self.kernel_posterior.distribution.loc, dtype)

    def _perturbation(self, dtype: Any) -> Any:
        return tf.cast(_draw(self.standard_deviations[0]), dtype)

    def _draw_kernel(self, dtype: Any) -> Any:
        if not self._form.drawn:
            return self._kernel_mean(dtype)
        mean = self.kernel_posterior.distribution.loc
        return tf.cast(mean + _draw(self.standard_deviations[0]), dtype)


class KeyedConvolution2DFlipout(VariationalLayer, tfp.layers.Convolution2DFlipout):  # type: ignore[misc]
    """TensorFlow Probability's Flipout convolution, its parameters variational, keyed.

    Source: Wen et al. (2018), section 3.2: y = x ∗ μ + ((x ∘ s) ∗ Δ) ∘ r, Δ ~ N(0, σ²), with signs
    s and r per example and channel.
    """

    def _apply_variational_kernel(self, inputs: Any, bias: Any) -> Any:
        batch, channels = tf.shape(inputs)[0], inputs.shape[-1]
        sign_input = _signs([batch, 1, 1, channels], inputs.dtype)
        sign_output = _signs([batch, 1, 1, self.filters], inputs.dtype)
        centre = self._convolution_op(inputs, self._kernel_mean(inputs.dtype))
        deviation = self._convolution_op(inputs * sign_input, self._perturbation(inputs.dtype))
        return tf.nn.bias_add(centre, bias) + deviation * sign_output


class KeyedDenseFlipout(VariationalLayer, tfp.layers.DenseFlipout):  # type: ignore[misc]
    """TensorFlow Probability's dense Flipout layer, its parameters variational, keyed.

    Source: Wen et al. (2018), section 3.1, Eq. 4.
    """

    def _apply_variational_kernel(self, inputs: Any, bias: Any) -> Any:
        batch, features = tf.shape(inputs)[0], inputs.shape[-1]
        sign_input = _signs([batch, features], inputs.dtype)
        sign_output = _signs([batch, self.units], inputs.dtype)
        centre = tf.matmul(inputs, self._kernel_mean(inputs.dtype))
        deviation = tf.matmul(inputs * sign_input, self._perturbation(inputs.dtype))
        # The bias last: TensorFlow's graph optimizer fails on a matrix product with a bias, a sum
        # and a ReLU after it.
        return centre + (deviation * sign_output + bias)


class DrawnConvolution2D(VariationalLayer, tfp.layers.Convolution2DReparameterization):  # type: ignore[misc]
    """A convolution with one draw of its weights for all examples of a batch, keyed."""

    def _apply_variational_kernel(self, inputs: Any, bias: Any) -> Any:
        return tf.nn.bias_add(self._convolution_op(inputs, self._draw_kernel(inputs.dtype)), bias)


class DrawnDense(VariationalLayer, tfp.layers.DenseReparameterization):  # type: ignore[misc]
    """A dense layer with one draw of its weights for all examples of a batch, keyed."""

    def _apply_variational_kernel(self, inputs: Any, bias: Any) -> Any:
        return tf.nn.bias_add(tf.matmul(inputs, self._draw_kernel(inputs.dtype)), bias)


class KeyedDropout(keras.layers.Layer):  # type: ignore[misc]
    """Dropout that is on in training and in prediction, keyed.

    Source: Gal and Ghahramani (2016).
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate

    def call(self, inputs: Any) -> Any:
        """Return the inputs with a share ``rate`` set to 0 and the rest scaled up to match."""
        # Drawn in float32 whatever the inputs are: a rate has more digits than bfloat16.
        kept = tf.random.stateless_uniform(tf.shape(inputs), seed=next_seed()) >= self.rate
        return tf.where(kept, inputs / tf.cast(1.0 - self.rate, inputs.dtype), 0.0)


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


def _draw(standard_deviation: Any) -> Any:
    shape = tf.shape(standard_deviation)
    return standard_deviation * tf.random.stateless_normal(shape, seed=next_seed())


Precision = Literal["float32", "bfloat16"]


@contextmanager
def computing_in(precision: Precision) -> Iterator[None]:
    """Have layers that are made inside compute in a precision (Keras' global policy)."""
    before = keras.mixed_precision.global_policy()
    policy = "mixed_bfloat16" if precision == "bfloat16" else precision
    keras.mixed_precision.set_global_policy(policy)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


DRAWS_AT_ONCE = 128  # seeds of one operation; a step of Flipout ResNet-20 draws 80 times


def split(key: Any, count: Any) -> Any:
    """Return keys (count, 2) that are hashes of one (2,), which is not to be used any more.

    Of another ``count`` the first ones may be the same.
    """
    return tf.random.split(key, count)


class _Keys:
    """The seeds of all draws under one key, in the order of the draws."""

    def __init__(self, key: Any) -> None:
        self._rest = key
        self._seeds: list[Any] = []

    def next(self) -> Any:
        if not self._seeds:
            *self._seeds, self._rest = tf.unstack(split(self._rest, DRAWS_AT_ONCE + 1))
        return self._seeds.pop(0)


_keys: ContextVar[_Keys | None] = ContextVar("keys", default=None)


@contextmanager
def keyed(key: Any) -> Iterator[None]:
    """Key the random draws of all layers called inside; a key is an int32 tensor (2,).

    Layers draw in the order of their calls, which a network fixes when it is built.
    """
    token = _keys.set(_Keys(key))
    try:
        yield
    finally:
        _keys.reset(token)


def next_seed() -> Any:
    """Return the seed (2,) of the next draw under the innermost key.

    Outside of any key, as where Keras builds a network, the seed is constant.
    """
    keys = _keys.get()
    return tf.constant([0, 0], tf.int32) if keys is None else keys.next()
