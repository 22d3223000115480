"""Residual networks for small images."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, field_validator

from bfl.learning.inferences import Inference
from bfl.learning.models.base import NormalizedNetwork, architectures


@architectures.register("resnet")
class ResNet(NormalizedNetwork):
    """Residual network of depth 6n + 2 for small images: three stages of n blocks.

    A 3x3 convolution of 16 filters, then stages of 16, 32 and 64 filters, n blocks of two 3x3
    convolutions each, the second and third stage beginning with strides of 2; global average
    pooling; one dense layer. Shortcuts have no parameters (option A: strided identity, new channels
    zero).

    Source: He et al. (2016), section 4.2; Fischer et al. (2024), section 3.2. He et al. give their
    convolutions no bias; Fischer et al. have "weights and biases", so these have one. The papers
    are silent on the momentum of batch normalisation's moving statistics. Strided convolutions pad
    as TensorFlow does: on even sides one pixel below and right, where He et al. pad on all sides.
    """

    minimum_side: ClassVar[int] = 4

    depth: int = Field(20, ge=8)
    """number of layers, 6n + 2"""

    @field_validator("depth")
    @classmethod
    def _is_6n_plus_2(cls, depth: int) -> int:
        if depth % 6 != 2:
            lower = depth - (depth - 2) % 6
            raise ValueError(
                f"a residual network has 6n + 2 layers, not {depth}; "
                f"nearest: resnet{lower}, resnet{lower + 6}"
            )
        return depth

    def build(self, inference: Inference, image_shape: tuple[int, int, int], classes: int) -> Any:
        """Return the Keras model from images in [−1, 1] to logits."""
        from bfl.keras import keras

        images = keras.Input(image_shape, name="images")
        first = inference.convolution(16, 3, strides=1, name="conv1")(self.scale_inputs(images))
        features = keras.layers.ReLU()(self.normalize(first, "conv1"))
        for stage, filters in enumerate((16, 32, 64), start=2):
            for block in range(1, (self.depth - 2) // 6 + 1):
                strides, name = 2 if stage > 2 and block == 1 else 1, f"conv{stage}_{block}"
                features = self._block(inference, features, filters, strides, name)
        pooled = keras.layers.GlobalAveragePooling2D(name="pool")(features)
        logits = inference.dense(classes, name="logits", output=True)(pooled)
        return keras.Model(images, logits, name=f"resnet{self.depth}")

    def _block(
        self, inference: Inference, features: Any, filters: int, strides: int, name: str
    ) -> Any:
        from bfl.keras import keras

        first = inference.convolution(filters, 3, strides=strides, name=f"{name}a")(features)
        first = keras.layers.ReLU()(self.normalize(first, f"{name}a"))
        second = inference.convolution(filters, 3, strides=1, name=f"{name}b")(first)
        second = self.normalize(second, f"{name}b")
        shortcut = self._shortcut(features, filters, strides, name)
        return keras.layers.ReLU()(keras.layers.Add(name=f"{name}_add")([shortcut, second]))

    @staticmethod
    def _shortcut(features: Any, filters: int, strides: int, name: str) -> Any:
        from bfl.keras import keras, tf

        missing = filters - features.shape[-1]
        if strides == 1 and missing == 0:
            return features

        def identity(tensor: Any) -> Any:
            # As a slice with strides, but several times as fast, forwards and backwards.
            strided = tf.nn.avg_pool2d(tensor, ksize=1, strides=strides, padding="VALID")
            before = missing // 2
            return tf.pad(strided, [[0, 0], [0, 0], [0, 0], [before, missing - before]])

        return keras.layers.Lambda(identity, name=f"{name}_shortcut")(features)
