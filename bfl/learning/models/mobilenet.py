"""MobileNetV2."""

from __future__ import annotations

from typing import Any, ClassVar

from bfl.learning.inferences import Inference
from bfl.learning.models.base import NormalizedNetwork, architectures

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, number of blocks and strides of the first: Sandler et al.'s Table 2."""


@architectures.register("mobilenet-v2", aliases=("mobilenetv2", "mobilenet"))
class MobileNetV2(NormalizedNetwork):
    """Inverted residuals with linear bottlenecks: 53 layers, for images of 32 x 32 or 64 x 64.

    With the weights of Keras' own (``tf_keras.applications.MobileNetV2``, width 1) and biases of 0
    it is the same function. The kernels of depthwise convolutions, 3 % of the weights, are points
    in every inference, since TensorFlow Probability has no variational layer for them.

    Source: Sandler et al. (2018), Table 2; FedBE (2021), section 5.3, which does not say what the
    strides are on small images.
    """

    minimum_side: ClassVar[int] = 8

    def build(self, inference: Inference, image_shape: tuple[int, int, int], classes: int) -> Any:
        """Return the Keras model from images in [−1, 1] to logits."""
        from bfl.keras import keras

        images = keras.Input(image_shape, name="images")
        first = inference.convolution(32, 3, strides=2, name="conv1")
        features = self._activate(first(self.scale_inputs(images)), "conv1")
        for stage, (expansion, channels, blocks, strides) in enumerate(STAGES, start=2):
            for block in range(1, blocks + 1):
                step, name = strides if block == 1 else 1, f"conv{stage}_{block}"
                features = self._block(inference, features, (expansion, channels), step, name)
        last = inference.convolution(1280, 1, strides=1, name="conv9")(features)
        active = self._activate(last, "conv9")
        pooled = keras.layers.GlobalAveragePooling2D(name="pool")(active)
        logits = inference.dense(classes, name="logits", output=True)(pooled)
        return keras.Model(images, logits, name="mobilenet-v2")

    def _block(
        self, inference: Inference, features: Any, widths: tuple[int, int], strides: int, name: str
    ) -> Any:
        from bfl.keras import keras

        (expansion, channels), before, inner = widths, features.shape[-1], features
        if expansion > 1:
            wide = inference.convolution(expansion * before, 1, strides=1, name=f"{name}a")
            inner = self._activate(wide(inner), f"{name}a")
        depthwise = inference.depthwise_convolution(3, strides=strides, name=f"{name}b")
        inner = self._activate(depthwise(inner), f"{name}b")
        narrow = inference.convolution(channels, 1, strides=1, name=f"{name}c")
        inner = self.normalize(narrow(inner), f"{name}c")
        if strides > 1 or before != channels:
            return inner
        return keras.layers.Add(name=f"{name}_add")([features, inner])

    def _activate(self, features: Any, name: str) -> Any:
        from bfl.keras import keras

        return keras.layers.ReLU(6.0)(self.normalize(features, name))
