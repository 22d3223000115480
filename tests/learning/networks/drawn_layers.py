"""A layer called under one key, or under many."""

import numpy as np

KEYS = 4000


def call(layer, inputs, layer_key):
    from bfl.learning.networks.keys import keyed

    with keyed(layer_key):
        return layer(inputs).numpy()


def draw_many(layer, inputs, count=KEYS):
    """Return the outputs under many keys, (count, *output)."""
    from bfl.keras import tf
    from bfl.learning.networks.keys import keyed

    @tf.function
    def run(keys):
        def one(layer_key):
            with keyed(layer_key):
                return layer(inputs)

        return tf.map_fn(one, keys, fn_output_signature=tf.float32)

    keys = np.stack([np.arange(count), np.full(count, 7)], axis=1).astype(np.int32)
    return run(keys).numpy().astype(np.float64)
