"""The convolutional network of Ozer et al. (LeNet5)."""

from __future__ import annotations

from typing import ClassVar

from bfl.learning.models.base import architectures
from bfl.learning.models.plain import Convolution, PlainNetwork


@architectures.register("convolutional", aliases=("simple-cnn", "lenet5"))
class Convolutional(PlainNetwork):
    """Two 5x5 convolutions with max-pooling, then dense layers of 120, 84 and the classes' units.

    The convolutions have 6 and 16 filters, no padding, and each is followed by ReLU and a 2x2
    max-pooling; the dense layers but the last are followed by ReLU. Images of 32 x 32 pixels give
    400 features to the first dense layer, those of 28 x 28 pixels 256.

    Source: Ozer et al. (2022), appendix 6.1, after Li et al. (2022), "Federated learning on
    non-IID data silos", whose code has the numbers of filters and no padding (``SimpleCNN``). Ozer
    et al. write "three linear layers with 400, 120, and 84 hidden dimensions": these are the widths
    of their inputs. In their Bayesian network only the dense layers are variational
    (``variational-layers`` = "dense"). The same network, with 28 x 28 images padded to 32 x 32, is
    the LeNet5 of federated mutual learning (Shen et al. 2020), whose networks HBFL (2023, section
    5) uses: max-pooling and ReLU instead of LeCun et al.'s (1998) subsampling and tanh. Ozer et
    al.'s code takes images in [0, 1] (``input-range`` = "unit").
    """

    minimum_side: ClassVar[int] = 16
    # TensorFlow 2.21: the gradient of max-pooling has no deterministic implementation in XLA.
    compilable: ClassVar[bool] = False
    convolutions: ClassVar[tuple[Convolution, ...]] = (Convolution(6, 5), Convolution(16, 5))
    dense_units: ClassVar[tuple[int, ...]] = (120, 84)
