"""HBFL's first convolutional network."""

from __future__ import annotations

from typing import ClassVar

from bfl.learning.models.base import architectures
from bfl.learning.models.plain import Convolution, PlainNetwork


@architectures.register("cnn1")
class Cnn1(PlainNetwork):
    """Two 5x5 convolutions with max-pooling, then dense layers of 120 and the classes' units.

    The convolutions are those of ``convolutional`` (LeNet5), so that the two can share them, as two
    tasks do in HBFL's Table 4. Images of 32 x 32 pixels with 3 channels and 10 classes: 52,202
    parameters.

    Source: HBFL (2023), section 5: "two 5x5 convolution layers (the first with 6 channels, the
    second with 16 channels, each followed with 2x2 max pooling and ReLu activation) and two FC
    layers". It does not say how wide the first of these is: 120, as LeNet5's, is ours.
    """

    minimum_side: ClassVar[int] = 16
    # TensorFlow 2.21: the gradient of max-pooling has no deterministic implementation in XLA.
    compilable: ClassVar[bool] = False
    convolutions: ClassVar[tuple[Convolution, ...]] = (Convolution(6, 5), Convolution(16, 5))
    dense_units: ClassVar[tuple[int, ...]] = (120,)
