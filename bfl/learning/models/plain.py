"""Plain networks: convolutions in a row, then dense layers in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from bfl.learning.inferences import Inference, Padding
from bfl.learning.models.base import ScaledInputs


@dataclass(frozen=True)
class Convolution:
    """A convolution with strides of 1, with ReLU and perhaps max-pooling after it.

    Attributes:
        filters: Its number of filters.
        size: Height and width of its kernel.
        pooled: Whether 2x2 max-pooling follows.
        padding: Whether zeros around its images keep their size.
    """

    filters: int
    size: int
    pooled: bool = True
    padding: Padding = "valid"


class PlainNetwork(ScaledInputs):
    """Convolutions and dense layers, ReLU after each of them but the last.

    A subclass says which. Layers of the same place have the same names in all of them, so networks
    with the same convolutions can share those. Pooling comes before ReLU: both orders give the same
    values and gradients, and this one has a quarter of the work.
    """

    convolutions: ClassVar[tuple[Convolution, ...]] = ()
    """The convolutions, from the images on."""

    dense_units: ClassVar[tuple[int, ...]]
    """Widths of the dense layers before the one that gives the logits."""

    @property
    def convolutional(self) -> bool:
        """True if it has convolutions."""
        return bool(self.layers())

    def layers(self) -> tuple[Convolution, ...]:
        """Return the convolutions, with those that a setting adds."""
        return self.convolutions

    def build(self, inference: Inference, image_shape: tuple[int, int, int], classes: int) -> Any:
        """Return the Keras model from images in [−1, 1] to logits."""
        from bfl.keras import keras

        images = keras.Input(image_shape, name="images")
        features = self.scaled(images)
        for index, convolution in enumerate(self.layers(), start=1):
            features = inference.convolution(
                convolution.filters,
                convolution.size,
                strides=1,
                name=f"conv{index}",
                padding=convolution.padding,
            )(features)
            if convolution.pooled:
                features = keras.layers.MaxPooling2D(2, name=f"pool{index}")(features)
            features = keras.layers.ReLU()(features)
        features = keras.layers.Flatten(name="flat")(features)
        for index, units in enumerate(self.dense_units, start=1):
            features = keras.layers.ReLU()(inference.dense(units, name=f"dense{index}")(features))
        logits = inference.dense(classes, name="logits", output=True)(features)
        return keras.Model(images, logits, name=self.name)
