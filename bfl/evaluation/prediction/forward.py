"""Forward passes of one network of given weights over a set of images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.data.images import Images
from bfl.keras import configured_threads, keras, operations_at_once, tf
from bfl.learning.networks.folding import FoldedModel
from bfl.learning.networks.keys import keyed
from bfl.learning.networks.network import Network, normalized_images, of_images
from bfl.posteriors import Manifest

LEAST_BATCHES_AT_ONCE = 2
"""Batches that are predicted side by side where all of TensorFlow's threads share an operation.

While one is at an operation too small to be split, the other keeps the remaining threads busy.
"""


def batches_at_once() -> int:
    """Return how many batches are predicted side by side, on which no bit depends.

    With fewer threads within an operation than operations at once, as many as keep all busy.
    """
    operations = operations_at_once()
    busy = operations // (configured_threads() or 1)
    return min(operations, max(LEAST_BATCHES_AT_ONCE, busy))


class ForwardPass:
    """A network of points that gives the logits of one model at a time; it is traced once.

    Args:
        manifest: The parameters of the network whose values are given.
        features: Whether it gives what the last layer takes, flat, in place of logits.
        stages: Names of convolutions; the means over pixels of what they take come behind features.
    """

    def __init__(
        self,
        manifest: Manifest,
        network: Network,
        batch_size: int,
        *,
        features: bool = False,
        stages: Iterable[str] = (),
    ) -> None:
        self.manifest = manifest
        self.network = network
        self.batch_size = batch_size
        self.traces = 0
        self._folded = FoldedModel(network.model)
        whole = self._folded.model
        self._model = _before_head(whole, stages) if features else whole
        key = tf.TensorSpec([2], tf.int32)
        self._forward = of_images(self._logits, network, key, autograph=False)

    def logits(
        self,
        values: npt.NDArray[Any],
        point: npt.NDArray[Any],
        images: Images,
        seed: int,
        labels: tuple[Any, ...],
    ) -> npt.NDArray[Any]:
        """Return the logits (N, C) of one model for images (N, H, W, C).

        Args:
            values: (D,) values of the Gaussian parameters.
            point: (P,) values of the point parameters.
            labels: What keys dropout masks besides the seed.
        """
        self.network.load_values(self.manifest, values, point)
        self._folded.update()
        # Dropout masks differ between batches: the batch's start is part of their key.
        keys = [
            randomness.key(seed, "masks", *labels, start)
            for start in range(0, len(images), self.batch_size)
        ]
        return self._all_logits(images, keys)

    def _all_logits(
        self, images: Images, keys: Sequence[npt.NDArray[np.int32]]
    ) -> npt.NDArray[Any]:
        def logits(number: int) -> npt.NDArray[Any]:
            start = number * self.batch_size
            batch = tf.constant(images[start : start + self.batch_size])
            result: npt.NDArray[Any] = self._forward(batch, tf.constant(keys[number])).numpy()
            return result

        with ThreadPoolExecutor(batches_at_once()) as pool:
            parts = list(pool.map(logits, range(len(keys))))
        return np.concatenate(parts)

    def _logits(self, images: Any, key: Any) -> Any:
        self.traces += 1
        with keyed(key):
            logits = self._model(normalized_images(images), training=False)
        return tf.cast(logits, tf.float32)


def _before_head(model: Any, stages: Iterable[str]) -> Any:
    """Return the model that ends, flat, before the last layer with weights, and before others."""
    tensor = model.output
    while not tensor.node.layer.weights:
        tensor = tensor.node.keras_inputs[0]
    found = [keras.layers.Flatten()(tensor.node.keras_inputs[0])]
    for name in stages:
        # The folded model shares layers with the model that it is made of; its call is the last.
        taken = model.get_layer(name).inbound_nodes[-1].keras_inputs[0]
        found.append(keras.layers.GlobalAveragePooling2D()(taken))
    return keras.Model(model.input, keras.layers.Concatenate()(found) if found[1:] else found[0])
