"""Layers of drawn outputs: the closed-form Gaussian, the divergence, keys, and TFP's own layer."""

import numpy as np
import pytest
from drawn_layers import (
    KEYS,
    assert_bits_are_those_of_the_key,
    assert_distributed_alike,
    assert_mean_and_variance,
    draw_many,
    draws_of_unmodified,
    key,
    linear,
    make_inputs,
    set_parameters,
)

from bfl.learning.inferences import inferences
from bfl.learning.models import create_architecture
from bfl.learning.priors import NormalPrior
from bfl.posteriors import Posterior

pytestmark = pytest.mark.usefixtures("tensorflow")

KINDS = ("convolution", "dense")


def make_layer(kind, padding="same"):
    """Return a built layer with random parameters, and these: means and σ of kernel and bias."""
    from bfl.learning.networks.layers import ReparameterizedConvolution2D, ReparameterizedDense

    if kind == "dense":
        layer = ReparameterizedDense(4)
        layer.build((None, 5))
    else:
        layer = ReparameterizedConvolution2D(4, 3, strides=2, padding=padding)
        layer.build((None, 6, 5, 3))
    return layer, set_parameters(layer)


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
    assert_mean_and_variance(draws, mean, variance)


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
    inputs = make_inputs("dense")
    assert_distributed_alike(draw_many(layer, inputs), draws_of_unmodified(original, inputs))


@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_those_of_the_key(kind):
    layer, _ = make_layer(kind)
    twin, _ = make_layer(kind)
    assert_bits_are_those_of_the_key(layer, twin, make_inputs(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_reparameterized_outputs(kind):
    """∂/∂μ and ∂/∂ρ of the sum of squares, with the noise that the key gives, by differences."""
    from bfl.keras import tf
    from bfl.learning.networks.layers import keyed

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
    from bfl.learning.networks.layers import keyed

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
