"""Batch normalisation's moving statistics made anew from given images."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.keras import keras, tf
from bfl.learning.networks.network import Network, normalized_images


class StatisticsPass:
    """Sets a network's moving statistics to the means, over batches, of the batches' own.

    Source: Izmailov et al. (2018), section 3.2: an average of models has statistics of its own.

    Args:
        network: The network.
        batch_size: Images in a batch; the last one counts by its size.
    """

    def __init__(self, network: Network, batch_size: int = 128) -> None:
        self.network = network
        self.batch_size = batch_size
        self.traces = 0
        self._layers = [
            layer
            for layer in network.model.layers
            if isinstance(layer, keras.layers.BatchNormalization)
        ]
        self._forward = tf.function(
            self._visit,
            input_signature=[
                tf.TensorSpec([None, *network.image_shape], tf.uint8),
                tf.TensorSpec([2], tf.int32),
            ],
            autograph=False,
        )

    def recompute(
        self, images: npt.NDArray[np.uint8], seed: int, labels: tuple[int | str, ...]
    ) -> None:
        """Set the statistics to those of images (N, H, W, C); draws are keyed by the labels."""
        if not self._layers:
            return
        variables = [
            v for layer in self._layers for v in (layer.moving_mean, layer.moving_variance)
        ]
        # From 0, a step of the moving average leaves its share of the batch's own.
        shares = [1.0 - layer.momentum for layer in self._layers for _ in range(2)]
        sums = [np.zeros(v.shape) for v in variables]
        for start in range(0, len(images), self.batch_size):
            for variable in variables:
                variable.assign(tf.zeros_like(variable))
            batch = images[start : start + self.batch_size]
            key = randomness.key(seed, "statistics", *labels, start)
            self._forward(tf.constant(batch), tf.constant(key))
            for total, variable, share in zip(sums, variables, shares, strict=True):
                total += len(batch) / share * variable.numpy()
        for total, variable in zip(sums, variables, strict=True):
            variable.assign((total / len(images)).astype(np.float32))

    def _visit(self, images: Any, key: Any) -> Any:
        self.traces += 1
        return self.network.logits(normalized_images(images), key, training=True)


@lru_cache(maxsize=8)
def statistics_pass(network: Network, batch_size: int = 128) -> StatisticsPass:
    """Return the pass of a network, traced at most once per process."""
    return StatisticsPass(network, batch_size)
