"""Keras layers whose random numbers are functions of a key, not of what the process did before.

A stateful random operation inside a cached ``tf.function`` keeps a counter of its own, so what a
client draws would depend on which clients the same process has served. These layers draw from
stateless operations instead, keyed by the innermost ``keyed(key)`` around the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from bfl.keras import keras, tf, tfp
from bfl.networks.parameters import ParameterVariables


class _Keys:
    """A key and how many draws have been made under it; each draw gets a seed of its own."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.draws = 0

    def next(self) -> Any:
        # The stateless generators scramble their seed, so neighbouring seeds are independent.
        self.draws += 1
        return self.key + tf.constant([0, self.draws], tf.int32)


_keys: ContextVar[_Keys | None] = ContextVar("keys", default=None)


@contextmanager
def keyed(key: Any) -> Iterator[None]:
    """Key the random draws of all layers called inside; a key is an int32 tensor (2,).

    Layers draw in the order in which they are called, which a network fixes when it is built.
    """
    token = _keys.set(_Keys(key))
    try:
        yield
    finally:
        _keys.reset(token)


def next_seed() -> Any:
    """Return the seed (2,) of the next draw under the innermost key.

    Outside of any key (Keras calls every layer once while a network is built, and throws the result
    away) the seed is constant.
    """
    keys = _keys.get()
    return tf.constant([0, 0], tf.int32) if keys is None else keys.next()


def _sample(distribution: Any) -> Any:
    return distribution.sample(seed=next_seed())


def _signs(shape: Any, dtype: Any) -> Any:
    return tfp.random.rademacher(shape, dtype=dtype, seed=next_seed())


def _adjustable_normal(
    dtype: Any, shape: Any, name: str, trainable: bool, add_variable_fn: Any
) -> Any:
    """Return a normal prior whose mean and scale are variables: set per run or per round.

    So the prior may change without tracing the training step again.
    """
    del trainable
    mean = add_variable_fn(
        name=f"{name}_mean", shape=shape, dtype=dtype, initializer="zeros", trainable=False
    )
    scale = add_variable_fn(
        name=f"{name}_scale", shape=shape, dtype=dtype, initializer="ones", trainable=False
    )
    normal = tfp.distributions.Normal(loc=mean, scale=scale)
    return tfp.distributions.Independent(normal, reinterpreted_batch_ndims=len(shape))


class VariationalLayer:
    """Marks a TensorFlow Probability layer whose kernel and bias are both distributions."""

    @staticmethod
    def distributions() -> dict[str, Any]:
        """Return the constructor's arguments: Gaussian posteriors and adjustable priors for all."""
        return {
            "kernel_posterior_fn": tfp.layers.default_mean_field_normal_fn(
                loc_initializer="zeros", untransformed_scale_initializer="zeros"
            ),
            "bias_posterior_fn": tfp.layers.default_mean_field_normal_fn(
                loc_initializer="zeros", untransformed_scale_initializer="zeros"
            ),
            "kernel_posterior_tensor_fn": _sample,
            "bias_posterior_tensor_fn": _sample,
            "kernel_prior_fn": _adjustable_normal,
            "bias_prior_fn": _adjustable_normal,
        }

    name: str
    kernel_posterior: Any
    kernel_prior: Any
    bias_posterior: Any
    bias_prior: Any

    def parameters(self) -> list[ParameterVariables]:
        """Return the variables of the kernel and of the bias, with those of their priors."""
        return [
            ParameterVariables(
                f"{self.name}/{part}",
                "he-normal" if part == "kernel" else "zeros",
                value=posterior.distribution.loc,
                untransformed_scale=posterior.distribution.scale.pretransformed_input,
                prior_mean=prior.distribution.loc,
                prior_scale=prior.distribution.scale,
            )
            for part, posterior, prior in (
                ("kernel", self.kernel_posterior, self.kernel_prior),
                ("bias", self.bias_posterior, self.bias_prior),
            )
        ]

    def _perturbation(self) -> Any:
        """Return a draw of the kernel's deviation from its mean, N(0, σ²)."""
        posterior = self.kernel_posterior.distribution
        deviation = tfp.distributions.Normal(tf.zeros_like(posterior.loc), posterior.scale)
        return _sample(deviation)


class KeyedConvolution2DFlipout(VariationalLayer, tfp.layers.Convolution2DFlipout):  # type: ignore[misc]
    """TensorFlow Probability's Flipout convolution, all of its parameters variational, keyed.

    Source: Wen et al. (2018), section 3.2: y = x ∗ μ + ((x ∘ s) ∗ Δ) ∘ r, Δ ~ N(0, σ²), with signs
    s and r per example and channel.
    """

    def __init__(self, filters: int, kernel_size: int, **kwargs: Any) -> None:
        super().__init__(filters, kernel_size, **self.distributions(), **kwargs)

    def _apply_variational_kernel(self, inputs: Any) -> Any:
        batch, channels = tf.shape(inputs)[0], inputs.shape[-1]
        sign_input = _signs([batch, 1, 1, channels], inputs.dtype)
        sign_output = _signs([batch, 1, 1, self.filters], inputs.dtype)
        self.kernel_posterior_tensor = None
        centre = self._convolution_op(inputs, self.kernel_posterior.distribution.loc)
        deviation = self._convolution_op(inputs * sign_input, self._perturbation())
        return centre + deviation * sign_output


class KeyedDenseFlipout(VariationalLayer, tfp.layers.DenseFlipout):  # type: ignore[misc]
    """TensorFlow Probability's dense Flipout layer, all of its parameters variational, keyed.

    Source: Wen et al. (2018), section 3.1, Eq. 4.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(units, **self.distributions(), **kwargs)

    def _apply_variational_kernel(self, inputs: Any) -> Any:
        batch, features = tf.shape(inputs)[0], inputs.shape[-1]
        sign_input = _signs([batch, features], inputs.dtype)
        sign_output = _signs([batch, self.units], inputs.dtype)
        self.kernel_posterior_tensor = None
        centre = tf.matmul(inputs, self.kernel_posterior.distribution.loc)
        deviation = tf.matmul(inputs * sign_input, self._perturbation())
        return centre + deviation * sign_output


class KeyedDropout(keras.layers.Layer):  # type: ignore[misc]
    """Dropout that is on in training and in prediction, keyed.

    Source: Gal and Ghahramani (2016).
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate

    def call(self, inputs: Any) -> Any:
        """Return the inputs with a share ``rate`` set to 0 and the rest scaled up to match."""
        return tf.nn.experimental.stateless_dropout(inputs, rate=self.rate, seed=next_seed())
