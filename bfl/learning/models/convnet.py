"""The convolutional network of FedBE's and HBFL's experiments."""

from __future__ import annotations

from typing import ClassVar

from bfl.learning.models.base import architectures
from bfl.learning.models.plain import Convolution, PlainNetwork


@architectures.register("convnet", aliases=("cnn2",))
class ConvNet(PlainNetwork):
    """Three 3x3 convolutions of 32, 64 and 64 filters, then dense layers of 64 and the classes.

    No padding and no normalisation; 2x2 max-pooling after the first two convolutions; ReLU after
    all layers but the last. Images of 32 x 32 pixels with 3 channels and 10 classes: 122,570
    parameters.

    Source: FedBE (2021), section 5.1, after TensorFlow's tutorial on convolutional networks; HBFL
    (2023), section 5, as CNN2, with the width of the dense layer from the code of federated mutual
    learning. FedBE's code begins with Xavier's initialisation; kernels here begin as everywhere
    else (He et al. 2015).
    """

    minimum_side: ClassVar[int] = 18
    # TensorFlow 2.21: the gradient of max-pooling has no deterministic implementation in XLA.
    compilable: ClassVar[bool] = False
    convolutions: ClassVar[tuple[Convolution, ...]] = (
        Convolution(32, 3),
        Convolution(64, 3),
        Convolution(64, 3, pooled=False),
    )
    dense_units: ClassVar[tuple[int, ...]] = (64,)
