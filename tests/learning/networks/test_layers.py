"""Keyed layers: bits by key alone, and the distributions that their outputs should have."""

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("tensorflow")

FAMILIES = pytest.mark.parametrize("family", ["flipout", "outputs"])
"""Layers that draw weights for a batch, with signs for each example, or each output by itself."""
KINDS = pytest.mark.parametrize("kind", ["conv", "dense"])
KEYS = 4000


def call(layer, inputs, layer_key):
    from bfl.learning.networks.layers import keyed

    with keyed(layer_key):
        return layer(inputs).numpy()


def draw_many(layer, inputs, count=KEYS):
    from bfl.keras import tf
    from bfl.learning.networks.layers import keyed

    @tf.function
    def run(keys):
        def one(layer_key):
            with keyed(layer_key):
                return layer(inputs)

        return tf.map_fn(one, keys, fn_output_signature=tf.float32)

    keys = np.stack([np.arange(count), np.full(count, 7)], axis=1).astype(np.int32)
    return run(keys).numpy().astype(np.float64)


def key(*words):
    return np.array(words, np.int32)


def set_parameters(layer, bias_scale=0.4):
    """Give a layer random parameters; return these: means and σ of kernel and bias."""
    rng = np.random.default_rng(0)
    parameters = {}
    for part, scale in (("kernel", 0.5), ("bias", bias_scale)):
        posterior = getattr(layer, f"{part}_posterior").distribution
        mean = rng.normal(size=posterior.loc.shape).astype(np.float32)
        sigma = (scale * rng.uniform(0.5, 2.0, posterior.loc.shape)).astype(np.float32)
        posterior.loc.assign(mean)
        posterior.scale.pretransformed_input.assign(np.log(np.expm1(sigma)))
        parameters[part] = (mean, sigma)
    return parameters


def make_layer(family, kind, padding="same", bias_scale=0.4):
    from bfl.learning.networks import layers

    makers = {
        ("flipout", "conv"): layers.KeyedConvolution2DFlipout,
        ("flipout", "dense"): layers.KeyedDenseFlipout,
        ("outputs", "conv"): layers.ReparameterizedConvolution2D,
        ("outputs", "dense"): layers.ReparameterizedDense,
    }
    make = makers[family, kind]
    layer = make(4) if kind == "dense" else make(4, 3, strides=2, padding=padding)
    layer.build((None, *make_inputs(kind).shape[1:]))
    return layer, set_parameters(layer, bias_scale)


def make_inputs(kind, batch=3):
    shape = (batch, 5) if kind == "dense" else (batch, 6, 5, 3)
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def linear(kind, inputs, kernel, padding="same"):
    """The plain operation in NumPy, without a bias."""
    if kind == "dense":
        return inputs @ kernel
    if padding == "same":
        total = [max((-(-s // 2) - 1) * 2 + 3 - s, 0) for s in inputs.shape[1:3]]
        inputs = np.pad(inputs, [(0, 0), *((t // 2, t - t // 2) for t in total), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(inputs, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows[:, ::2, ::2], kernel)


def assert_mean_and_variance(draws, mean, variance):
    """Compare within 5 standard errors, of every output."""
    error = np.abs(draws.mean(axis=0) - mean) / np.sqrt(variance / len(draws))
    assert error.max() < 5
    assert np.abs(draws.var(axis=0) / variance - 1).max() < 5 * np.sqrt(2 / len(draws))


@FAMILIES
@KINDS
def test_bits_are_those_of_the_key_whatever_was_called_before(family, kind):
    (layer, _), (twin, _) = (make_layer(family, kind) for _ in range(2))
    inputs = make_inputs(kind)
    first = call(layer, inputs, key(1, 2))
    for words in ((1, 3), (2, 2), (-5, 2**31 - 1)):
        assert not np.isclose(first, call(layer, inputs, key(*words))).any()
    np.testing.assert_array_equal(call(layer, inputs, key(1, 2)), first)
    np.testing.assert_array_equal(call(twin, inputs, key(1, 2)), first)


@FAMILIES
@pytest.mark.parametrize(
    ("kind", "padding"), [("dense", "same"), ("conv", "same"), ("conv", "valid")]
)
def test_outputs_have_the_mean_and_variance_of_the_closed_form(family, kind, padding):
    layer, parameters = make_layer(family, kind, padding)
    draws, inputs = draw_many(layer, make_inputs(kind)), make_inputs(kind).astype(np.float64)
    (kernel, kernel_sigma), (bias, bias_sigma) = parameters["kernel"], parameters["bias"]
    mean = linear(kind, inputs, kernel, padding) + bias
    variance = linear(kind, inputs**2, kernel_sigma**2, padding) + bias_sigma**2
    assert draws.shape[1:] == mean.shape
    assert_mean_and_variance(draws, mean, variance)
    if family == "flipout":
        # The examples of a batch are uncorrelated but for the bias, which they share.
        one, other, *_ = np.moveaxis(draws - draws.mean(axis=0), 1, 0)
        covariance = (one * other).mean(axis=0).reshape(-1, 4).mean(axis=0)
        np.testing.assert_allclose(covariance, bias_sigma**2, atol=0.15)


@KINDS
def test_calls_under_one_key_draw_anew_and_keys_nest(kind):
    from bfl.learning.networks.layers import keyed

    layer, _ = make_layer("flipout", kind)
    inputs = make_inputs(kind)
    with keyed(key(1, 2)):
        first = layer(inputs).numpy()
        inner = call(layer, inputs, key(1, 2))
        second = layer(inputs).numpy()
    np.testing.assert_array_equal(first, inner)
    assert not np.isclose(first, second).any()
    with keyed(key(1, 2)):
        layer(inputs)
        np.testing.assert_array_equal(layer(inputs).numpy(), second)


def test_signs_of_the_dense_layer():
    """Outputs deviate by (x_i ∘ s_i) Δ ∘ r_i, with one Δ for the batch and signs per example."""
    layer, parameters = make_layer("flipout", "dense", bias_scale=1e-6)
    mean, (bias, _) = parameters["kernel"][0], parameters["bias"]
    batch, features, units = 6, 5, 4
    deviations = np.zeros((batch, features, units))
    for feature in range(features):
        inputs = np.zeros((batch, features), np.float32)
        inputs[:, feature] = 1.0
        outputs = call(layer, inputs, key(1, 2))
        deviations[:, feature] = outputs - mean[feature] - bias
    assert_signs(deviations)
    inputs = make_inputs("dense", batch)
    expected = np.einsum("if,ifu->iu", inputs, deviations) + inputs @ mean + bias
    np.testing.assert_allclose(call(layer, inputs, key(1, 2)), expected, atol=1e-4)


def test_signs_of_the_convolution():
    layer, parameters = make_layer("flipout", "conv", bias_scale=1e-6)
    mean, (bias, _) = parameters["kernel"][0], parameters["bias"]
    batch, channels = 6, 3
    deviations = []
    for channel in range(channels):
        inputs = np.zeros((batch, 6, 5, channels), np.float32)
        inputs[..., channel] = 1.0
        outputs = call(layer, inputs, key(1, 2))
        deviations.append(outputs - linear("conv", inputs, mean) - bias)
    stacked = np.stack(deviations, axis=1)  # (batch, channels, height, width, filters)
    ratio = stacked / stacked[:1]
    # One sign for all places of a channel.
    np.testing.assert_allclose(ratio, ratio[:, :, :1, :1].repeat(3, 2).repeat(3, 3), atol=1e-2)
    assert_signs(stacked[:, :, 1, 1])
    inputs = make_inputs("conv", batch)
    outputs = call(layer, inputs, key(1, 2)) - linear("conv", inputs, mean) - bias
    by_channel = 0.0
    for channel in range(channels):
        alone = np.where(np.arange(channels) == channel, inputs, np.float32(0))
        by_channel += call(layer, alone, key(1, 2)) - linear("conv", alone, mean) - bias
    np.testing.assert_allclose(outputs, by_channel, atol=1e-4)


def assert_signs(deviations):
    """Check that (batch, inputs, outputs) are |Δ| times s_i r_i, which differ between examples."""
    size = np.abs(deviations)
    np.testing.assert_allclose(size, size[:1].repeat(len(size), axis=0), atol=2e-5)
    relative = np.sign(deviations * deviations[:1])  # s_i s_0 · r_i r_0
    outer = relative[:, :, :1] * relative[:, :1, :] * relative[:, :1, :1]
    np.testing.assert_array_equal(relative, outer)
    assert len(np.unique(relative[1:].reshape(len(relative) - 1, -1), axis=0)) > 2
    # Both signs vary: over the inputs and over the outputs.
    assert (relative[:, :, 0].min(axis=1) != relative[:, :, 0].max(axis=1)).any()
    assert (relative[:, 0, :].min(axis=1) != relative[:, 0, :].max(axis=1)).any()


@KINDS
def test_every_output_of_every_example_is_drawn_by_itself(kind):
    """The same image twice, in a batch: no two outputs are correlated."""
    layer, _ = make_layer("outputs", kind)
    inputs = np.repeat(make_inputs(kind, 1), 2, axis=0)
    draws = draw_many(layer, inputs).reshape(KEYS, -1)
    correlation = np.corrcoef(draws.T) - np.eye(draws.shape[1])
    assert np.abs(correlation).max() < 6 / np.sqrt(KEYS)


@KINDS
def test_inputs_of_zeros_have_finite_gradients(kind):
    """Whole features may be 0 behind a ReLU; the root of the variance must not be at 0."""
    from bfl.keras import tf
    from bfl.learning.networks.layers import keyed

    layer, _ = make_layer("outputs", kind)
    layer.bias_posterior.distribution.scale.pretransformed_input.assign(np.full(4, -32.0, "f4"))
    with tf.GradientTape() as tape, keyed(key(1, 2)):
        value = tf.reduce_sum(layer(np.zeros_like(make_inputs(kind))))
    for gradient in tape.gradient(value, layer.trainable_variables):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("training", [False, True])
def test_dropout(rate, training):
    from bfl.learning.networks.layers import KeyedDropout, keyed

    layer = KeyedDropout(rate)
    inputs = np.random.default_rng(0).uniform(1, 2, (40, 10, 10, 5)).astype(np.float32)

    def run(*words):
        with keyed(key(*words)):
            return layer(inputs, training=training).numpy() if training else layer(inputs).numpy()

    output = run(1, 2)
    kept = output != 0
    assert kept.mean() == pytest.approx(1 - rate, abs=5 * np.sqrt(rate * (1 - rate) / inputs.size))
    np.testing.assert_allclose(output[kept], (inputs / (1 - rate))[kept], rtol=1e-6)
    # Every unit of every example by itself.
    shares = kept.mean(axis=(1, 2, 3))
    assert len(np.unique(kept.reshape(40, -1), axis=0)) == 40
    assert np.abs(shares - (1 - rate)).max() < 5 * np.sqrt(rate * (1 - rate) / 500)
    np.testing.assert_array_equal(run(1, 2), output)
    assert ((run(1, 3) != 0) != kept).mean() == pytest.approx(2 * rate * (1 - rate), abs=0.03)
