"""Networks for tests: any model in any inference, and one that is built and traced quickly."""

from typing import Any

from bfl.learning.inferences import Inference, inferences
from bfl.learning.models import architectures
from bfl.learning.models.base import NormalizedNetwork


def build(
    word: str,
    inference: str,
    shape: tuple[int, int, int] = (8, 8, 1),
    classes: int = 10,
    precision: Any = "float32",
    **settings: Any,
) -> Any:
    """Return the network of a model's word, built once, with settings of model and inference."""
    from bfl.learning.networks.network import build_network

    created = inferences.create(inference, settings)
    return build_network(architectures.create(word, settings), created, shape, classes, precision)


class SmallNetwork(NormalizedNetwork):
    """Two convolutions of 16 filters, each with batch normalisation, and a dense layer.

    All that a ResNet has, in a fraction of its time.
    """

    def build(self, inference: Inference, image_shape: tuple[int, int, int], classes: int) -> Any:
        from bfl.keras import keras

        features = images = keras.Input(image_shape)
        for name, strides in (("conv1", 2), ("conv2", 1)):
            features = inference.convolution(16, 3, strides=strides, name=name)(features)
            features = keras.layers.ReLU()(self.normalize(features, name))
        flat = keras.layers.Flatten()(features)
        return keras.Model(images, inference.dense(classes, name="logits", output=True)(flat))
