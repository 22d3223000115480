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


def assert_bits_are_those_of_the_key(layer, twin, inputs):
    """Whatever was called before; ``twin`` has the same parameters."""
    first = call(layer, inputs, key(1, 2))
    for words in ((1, 3), (2, 2), (-5, 2**31 - 1)):
        assert not np.isclose(first, call(layer, inputs, key(*words))).any()
    np.testing.assert_array_equal(call(layer, inputs, key(1, 2)), first)
    np.testing.assert_array_equal(call(twin, inputs, key(1, 2)), first)


def assert_distributed_alike(draws, others):
    """Compare means and standard deviations of as many draws of two layers."""
    error = np.sqrt((draws.var(axis=0) + others.var(axis=0)) / KEYS)
    assert (np.abs(draws.mean(axis=0) - others.mean(axis=0)) / error).max() < 5
    assert np.abs(draws.std(axis=0) / others.std(axis=0) - 1).max() < 5 * np.sqrt(1 / KEYS)


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
