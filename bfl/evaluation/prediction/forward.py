"""Forward passes of one network of given weights over a set of images.

Batch normalisation is folded into the layer before it. In prediction, it is the same affine
function of each channel for every batch. A convolution or dense layer before it can do that work
with other weights, which saves a pass over the activations.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.data.images import Images
from bfl.keras import configured_threads, keras, operations_at_once, tf
from bfl.learning.networks.layers import keyed
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
        self._folded = folded_model(network)
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


Array = npt.NDArray[np.floating]


def fold(
    kernel: Array,
    bias: Array,
    *,
    scale: Array,
    offset: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
) -> tuple[Array, Array]:
    """Return the float32 kernel (..., C) and bias (C,) of a layer and its normalisation in one.

    γ (k ∗ x + b − m) / √(v + ε) + β = (f k) ∗ x + f (b − m) + β with f = γ / √(v + ε).

    Source: Ioffe and Szegedy (2015), section 3.1, Algorithm 2.
    """
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    return (
        (kernel * factor).astype(np.float32),
        ((bias - mean.astype(np.float64)) * factor + offset).astype(np.float32),
    )


@dataclass(frozen=True)
class _Pair:
    """A layer, the normalisation after it, and the layer that does the work of both."""

    layer: Any
    normalization: Any
    folded: Any


class FoldedModel:
    """A Keras model of points for prediction, with batch normalisation folded where it can be.

    It can be after a convolution or dense layer without activation if the outputs of the one go
    nowhere else and the inputs of the other come from nowhere else; with dropout between the two
    both stay as they are. All other layers are those of the model itself, and so are their weights.

    Attributes:
        model: What predicts; the given model if nothing can be folded.
    """

    def __init__(self, model: Any) -> None:
        self._pairs = {
            layer.name: _Pair(layer, normalization, type(layer).from_config(layer.get_config()))
            for layer in model.layers
            if (normalization := _foldable_normalization(layer)) is not None
        }
        self._normalizations = {pair.normalization.name for pair in self._pairs.values()}
        self.model = model
        if self._pairs:
            self.model = keras.models.clone_model(model, clone_function=self._counterpart)
        self.update()

    def _counterpart(self, layer: Any) -> Any:
        """Return the layer that stands in the folded model for a layer of the model."""
        if layer.name in self._pairs:
            return self._pairs[layer.name].folded
        if layer.name in self._normalizations:
            return keras.layers.Activation("linear", name=layer.name, dtype=layer.dtype_policy)
        return layer

    def update(self) -> None:
        """Take over the weights that the model has now."""
        for pair in self._pairs.values():
            normalization = pair.normalization
            kernel, bias = fold(
                pair.layer.kernel.numpy(),
                pair.layer.bias.numpy(),
                scale=normalization.gamma.numpy(),
                offset=normalization.beta.numpy(),
                mean=normalization.moving_mean.numpy(),
                variance=normalization.moving_variance.numpy(),
                epsilon=normalization.epsilon,
            )
            pair.folded.kernel.assign(kernel)
            pair.folded.bias.assign(bias)


@lru_cache(maxsize=4)
def folded_model(network: Network) -> FoldedModel:
    """Return the folded model of a network, which all its forward passes share."""
    return FoldedModel(network.model)


def _foldable_normalization(layer: Any) -> Any:
    """Return the batch normalisation that alone takes a layer's outputs, or None."""
    if type(layer) not in (keras.layers.Conv2D, keras.layers.Dense):
        return None
    if layer.activation is not keras.activations.linear or not layer.use_bias:
        return None
    takers = [node.layer for node in layer.outbound_nodes]
    if len(takers) != 1 or type(takers[0]) is not keras.layers.BatchNormalization:
        return None
    return takers[0] if len(takers[0].inbound_nodes) == 1 else None
