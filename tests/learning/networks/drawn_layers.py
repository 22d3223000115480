"""Layers with random parameters and inputs, called under one key or under many."""

import numpy as np

KEYS = 4000


def call(layer, inputs, layer_key):
    from bfl.learning.networks.layers import keyed

    with keyed(layer_key):
        return layer(inputs).numpy()


def draw_many(layer, inputs, count=KEYS):
    """Return the outputs under many keys, (count, *output)."""
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
    """Return a built layer with random parameters, and these: means and σ of kernel and bias."""
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


def draws_of_unmodified(layer, inputs):
    """Return as many outputs of TensorFlow Probability's own layer, (KEYS, *output)."""
    from bfl.keras import tf

    tf.random.set_seed(0)
    try:
        layer.build(inputs.shape)
        set_parameters(layer)
        keys, kind = tf.range(KEYS), tf.float32
        run = tf.function(
            lambda: tf.map_fn(lambda _: layer(inputs), keys, fn_output_signature=kind)
        )
        return run().numpy().astype(np.float64)
    finally:
        tf.random.set_seed(None)
