"""Batch normalisation folded into the layer before it, for prediction.

In prediction, batch normalisation is the same affine function of each channel for every batch. A
convolution or dense layer before it can do that work with other weights, which saves a pass over
the activations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.keras import keras

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

    Args:
        bias: b (C,).
        scale: γ (C,).
        offset: β (C,).
        mean: The moving mean m (C,).
        variance: The moving variance v (C,).
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
