"""The small convolutional network of federated-learning benchmarks."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from bfl.learning.inferences.base import Inference
from bfl.learning.models.base import Architecture, architectures


@architectures.register("convolutional", aliases=("simple-cnn",))
class Convolutional(Architecture):
    """Two 5x5 convolutions with max-pooling, then dense layers of 120, 84 and the classes' units.

    The convolutions have 6 and 16 filters, no padding, and each is followed by ReLU and a 2x2
    max-pooling; the dense layers but the last are followed by ReLU. Images of 32 x 32 pixels give
    400 features to the first dense layer, those of 28 x 28 pixels 256.

    Source: Ozer et al. (2022), appendix 6.1, after Li et al. (2022), "Federated learning on
    non-IID data silos", whose code has the numbers of filters and no padding (``SimpleCNN``). Ozer
    et al. write "three linear layers with 400, 120, and 84 hidden dimensions": these are the widths
    of their inputs. In their Bayesian network only the dense layers are variational
    (``variational-layers`` = "dense"). Pooling comes before ReLU here: both orders give the same
    values and gradients, and this one has a quarter of the work. Their code takes images in [0, 1]
    (``input-range`` = "unit").
    """

    minimum_side: ClassVar[int] = 16
    # TensorFlow 2.21: the gradient of max-pooling has no deterministic implementation in XLA.
    compilable: ClassVar[bool] = False

    input_range: Literal["symmetric", "unit"] = Field(
        "symmetric", description="whether the first layer takes images in [-1, 1] or in [0, 1]"
    )

    def build(self, inference: Inference, image_shape: tuple[int, int, int], classes: int) -> Any:
        """Return the Keras model from images in [−1, 1] to logits."""
        from bfl.keras import keras

        features = images = keras.Input(image_shape, name="images")
        if self.input_range == "unit":
            features = keras.layers.Rescaling(0.5, offset=0.5, name="unit")(images)
        for index, filters in enumerate((6, 16), start=1):
            convolution = inference.convolution(
                filters, 5, strides=1, name=f"conv{index}", padding="valid"
            )
            pooled = keras.layers.MaxPooling2D(2, name=f"pool{index}")(convolution(features))
            features = keras.layers.ReLU()(pooled)
        features = keras.layers.Flatten(name="flat")(features)
        for index, units in enumerate((120, 84), start=1):
            features = keras.layers.ReLU()(inference.dense(units, name=f"dense{index}")(features))
        logits = inference.dense(classes, name="logits", output=True)(features)
        return keras.Model(images, logits, name="convolutional")
