"""FedBE's convolutional network."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

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
    learning. FedBE's code begins with ``initial-means`` = "xavier-uniform", and puts further
    convolutions of 64 filters, padded, before the dense layers: ``extra-convolutions``, as in the
    paper's study of the network's depth (Fig. 4).
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

    extra_convolutions: int = Field(
        0, ge=0, le=100, description="padded 3x3 convolutions of 64 filters after the other three"
    )

    def layers(self) -> tuple[Convolution, ...]:
        """Return the three convolutions and the extra ones."""
        extra = Convolution(64, 3, pooled=False, padding="same")
        return (*self.convolutions, *(extra for _ in range(self.extra_convolutions)))
