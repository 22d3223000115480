"""Layers of drawn outputs: the closed-form Gaussian, the divergence, keys, and TFP's own layer."""

import numpy as np
import pytest
from drawn_layers import KEYS, call, draw_many

from bfl.learning.inferences import inferences
from bfl.learning.models import create_architecture
from bfl.learning.priors import NormalPrior
from bfl.posteriors import Posterior

pytestmark = pytest.mark.usefixtures("tensorflow")

KINDS = ("convolution", "dense")


def key(*words):
    return np.array(words, np.int32)


def make_layer(kind, padding="same"):
    """Return a built layer with random parameters, and these: means and σ of kernel and bias."""
    from bfl.learning.networks.layers import (
        ReparameterizedConvolution2D,
        ReparameterizedDense,
    )

    if kind == "dense":
        layer = ReparameterizedDense(4)
        layer.build((None, 5))
    else:
        layer = ReparameterizedConvolution2D(4, 3, strides=2, padding=padding)
        layer.build((None, 6, 5, 3))
    return layer, set_parameters(layer)


def set_parameters(layer, scale=0.5):
    rng = np.random.default_rng(0)
    parameters = {}
    for part in ("kernel", "bias"):
        posterior = getattr(layer, f"{part}_posterior").distribution
        mean = rng.normal(size=posterior.loc.shape).astype(np.float32)
        sigma = (scale * rng.uniform(0.5, 2.0, posterior.loc.shape)).astype(np.float32)
        posterior.loc.assign(mean)
        posterior.scale.pretransformed_input.assign(np.log(np.expm1(sigma)))
        parameters[part] = (mean.astype(np.float64), sigma.astype(np.float64))
    return parameters


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


@pytest.mark.parametrize(
    ("kind", "padding"), [("dense", "same"), ("convolution", "same"), ("convolution", "valid")]
)
def test_outputs_have_the_mean_and_variance_of_the_closed_form(kind, padding):
    layer, parameters = make_layer(kind, padding)
    inputs = make_inputs(kind)
    draws = draw_many(layer, inputs)
    (mu, sigma), (bias, bias_sigma) = parameters["kernel"], parameters["bias"]
    wide = inputs.astype(np.float64)
    mean = linear(kind, wide, mu, padding) + bias
    variance = linear(kind, wide**2, sigma**2, padding) + bias_sigma**2
    assert draws.shape[1:] == mean.shape
    error = np.abs(draws.mean(axis=0) - mean) / np.sqrt(variance / KEYS)
    assert error.max() < 5
    assert np.abs(draws.var(axis=0) / variance - 1).max() < 5 * np.sqrt(2 / KEYS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_output_of_every_example_is_drawn_by_itself(kind):
    """The same image twice, in a batch: no two outputs are correlated."""
    layer, _ = make_layer(kind)
    inputs = np.repeat(make_inputs(kind, 1), 2, axis=0)
    draws = draw_many(layer, inputs).reshape(KEYS, -1)
    correlation = np.corrcoef(draws.T) - np.eye(draws.shape[1])
    assert np.abs(correlation).max() < 6 / np.sqrt(KEYS)


def test_dense_outputs_are_distributed_as_those_of_the_unmodified_layer(tensorflow):
    from bfl.keras import tfp

    layer, _ = make_layer("dense")
    original = tfp.layers.DenseLocalReparameterization(
        4, bias_posterior_fn=tfp.layers.default_mean_field_normal_fn()
    )
    original.build((None, 5))
    set_parameters(original)
    inputs = make_inputs("dense")
    tensorflow.random.set_seed(0)
    try:
        run = tensorflow.function(
            lambda: tensorflow.map_fn(
                lambda _: original(inputs), tensorflow.range(KEYS), fn_output_signature="float32"
            )
        )
        expected = run().numpy().astype(np.float64)
    finally:
        tensorflow.random.set_seed(None)
    draws = draw_many(layer, inputs)
    error = np.sqrt((draws.var(axis=0) + expected.var(axis=0)) / KEYS)
    assert (np.abs(draws.mean(axis=0) - expected.mean(axis=0)) / error).max() < 5
    assert np.abs(draws.std(axis=0) / expected.std(axis=0) - 1).max() < 5 * np.sqrt(1 / KEYS)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_those_of_the_key(kind):
    layer, _ = make_layer(kind)
    twin, _ = make_layer(kind)
    inputs = make_inputs(kind)
    first = call(layer, inputs, key(1, 2))
    for words in ((1, 3), (2, 2), (-5, 2**31 - 1)):
        assert not np.isclose(first, call(layer, inputs, key(*words))).any()
    np.testing.assert_array_equal(call(layer, inputs, key(1, 2)), first)
    np.testing.assert_array_equal(call(twin, inputs, key(1, 2)), first)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_reparameterized_outputs(kind):
    """∂/∂μ and ∂/∂ρ of the sum of squares, with the noise that the key gives, by differences."""
    from bfl.keras import tf
    from bfl.learning.networks.keys import keyed

    layer, _ = make_layer(kind)
    inputs = make_inputs(kind)

    def total():
        with keyed(key(1, 2)):
            return tf.reduce_sum(tf.square(layer(inputs)))

    variables = layer.trainable_variables
    assert len(variables) == 4
    with tf.GradientTape() as tape:
        value = total()
    for variable, gradient in zip(variables, tape.gradient(value, variables), strict=True):
        start, place = variable.numpy(), tuple(0 for _ in variable.shape)
        ends = []
        for change in (-1e-2, 1e-2):
            moved = start.copy()
            moved[place] += change
            variable.assign(moved)
            ends.append(float(total()))
        variable.assign(start)
        slope = (ends[1] - ends[0]) / 2e-2
        assert float(gradient.numpy()[place]) == pytest.approx(slope, rel=2e-2, abs=2e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_zeros_have_finite_gradients(kind):
    """Whole features may be 0 behind a ReLU; the root of the variance must not be at 0."""
    from bfl.keras import tf
    from bfl.learning.networks.keys import keyed

    layer, _ = make_layer(kind)
    layer.bias_posterior.distribution.scale.pretransformed_input.assign(np.full(4, -32.0, "f4"))
    with tf.GradientTape() as tape, keyed(key(1, 2)):
        value = tf.reduce_sum(layer(np.zeros_like(make_inputs(kind))))
    for gradient in tape.gradient(value, layer.trainable_variables):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("layers", ["all", "dense"])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_divergence_is_the_closed_form(layers, scale):
    from bfl.learning.networks.network import build_network

    inference = inferences.create("reparameterization", {"variational-layers": layers})
    network = build_network(create_architecture("convolutional"), inference, (16, 16, 1), 10)
    rng, manifest = np.random.default_rng(0), network.manifest
    posterior = Posterior(
        rng.normal(size=manifest.gaussian_size).astype(np.float32),
        rng.uniform(1e-3, 1, manifest.gaussian_size).astype(np.float32),
        rng.normal(size=manifest.point_size).astype(np.float32),
    )
    network.load(posterior)
    network.set_prior(NormalPrior(0.0, scale))
    images = rng.uniform(-1, 1, (2, 16, 16, 1)).astype(np.float32)
    network.logits(images, key(1, 2), training=True)
    mean, variance = (v.astype(np.float64) for v in (posterior.mean, posterior.variance))
    terms = np.log(scale / np.sqrt(variance)) + (variance + mean**2) / (2 * scale**2) - 0.5
    assert float(network.divergence()) == pytest.approx(terms.sum(), rel=1e-5)
