"""Plain networks: convolutions in a row, then dense layers in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from bfl.learning.inferences import Inference, Padding
from bfl.learning.models.base import ScaledInputs, architectures


@dataclass(frozen=True)
class Convolution:
    """A convolution with strides of 1, a kernel (size, size), ReLU and perhaps 2x2 max-pooling."""

    filters: int
    size: int
    pooled: bool = True
    padding: Padding = "valid"


class PlainNetwork(ScaledInputs):
    """Convolutions and dense layers, ReLU after each of them but the last.

    Layers of the same place have the same names in all of them, so networks with the same
    convolutions can share those. Pooling comes before ReLU: the values are the same, for less work.
    """

    convolutions: ClassVar[tuple[Convolution, ...]] = ()
    dense_units: ClassVar[tuple[int, ...]]  # before the one that gives the logits

    @property
    def convolutional(self) -> bool:
        """True if it has convolutions."""
        return bool(self.layers())

    @property
    def compilable(self) -> bool:
        """True without max-pooling, whose gradient XLA (TensorFlow 2.21) does not repeat."""
        return not any(convolution.pooled for convolution in self.layers())

    def layers(self) -> tuple[Convolution, ...]:
        """Return the convolutions, with those that a setting adds."""
        return self.convolutions

    def build(self, inference: Inference, image_shape: tuple[int, int, int], classes: int) -> Any:
        """Return the Keras model from images in [−1, 1] to logits."""
        from bfl.keras import keras

        images = keras.Input(image_shape, name="images")
        features = self.scale_inputs(images)
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


@architectures.register("convolutional", aliases=("simple-cnn", "lenet5"))
class Convolutional(PlainNetwork):
    """Two 5x5 convolutions with max-pooling, then dense layers of 120, 84 and the classes' units.

    The convolutions have 6 and 16 filters and no padding. Images of 32 x 32 pixels give the first
    dense layer 400 features, those of 28 x 28 pixels 256.

    Source: Ozer et al. (2022), appendix 6.1, whose "400, 120, and 84 hidden dimensions" are the
    widths of the dense layers' inputs, after Li et al. (2022), "Federated learning on non-IID data
    silos" (``SimpleCNN``). Their Bayesian network has ``variational-layers`` = "dense", their code
    ``input-range`` = "unit". With images padded to 32 x 32 it is the LeNet5 of federated mutual
    learning (Shen et al. 2020) and of HBFL (2023, section 5).
    """

    minimum_side: ClassVar[int] = 16
    convolutions: ClassVar[tuple[Convolution, ...]] = (Convolution(6, 5), Convolution(16, 5))
    dense_units: ClassVar[tuple[int, ...]] = (120, 84)


@architectures.register("cnn1")
class Cnn1(Convolutional):
    """Two 5x5 convolutions with max-pooling, then dense layers of 120 and the classes' units.

    The convolutions are those of ``convolutional``, so that the two can share them, as in HBFL's
    Table 4. Images of 32 x 32 pixels with 3 channels and 10 classes: 52,202 parameters.

    Source: HBFL (2023), section 5, which does not say how wide the first dense layer is: 120, as
    LeNet5's, is ours.
    """

    dense_units: ClassVar[tuple[int, ...]] = (120,)


@architectures.register("convnet", aliases=("cnn2",))
class ConvNet(PlainNetwork):
    """Three 3x3 convolutions of 32, 64 and 64 filters, then dense layers of 64 and the classes.

    No padding and no normalisation; 2x2 max-pooling after the first two convolutions. Images of
    32 x 32 pixels with 3 channels and 10 classes: 122,570 parameters.

    Source: FedBE (2021), section 5.1, after TensorFlow's tutorial on convolutional networks; HBFL
    (2023), section 5, as CNN2, with the width of the dense layer from the code of federated mutual
    learning. FedBE's code begins with ``initial-means`` = "xavier-uniform", and puts further
    convolutions of 64 filters, padded, before the dense layers: ``extra-convolutions``, as in the
    paper's study of the network's depth (Fig. 4).
    """

    minimum_side: ClassVar[int] = 18
    convolutions: ClassVar[tuple[Convolution, ...]] = (
        Convolution(32, 3),
        Convolution(64, 3),
        Convolution(64, 3, pooled=False),
    )
    dense_units: ClassVar[tuple[int, ...]] = (64,)

    extra_convolutions: int = Field(0, ge=0, le=100)
    """padded 3x3 convolutions of 64 filters after the other three"""

    def layers(self) -> tuple[Convolution, ...]:
        """Return the three convolutions and the extra ones."""
        extra = Convolution(64, 3, pooled=False, padding="same")
        return (*self.convolutions, *(extra for _ in range(self.extra_convolutions)))


@architectures.register("mlp", aliases=("multilayer-perceptron",))
class MultilayerPerceptron(PlainNetwork):
    """Dense layers of 200, 200 and the classes' units, with ReLU between them.

    Source: HBFL (2023), section 5, with the widths of the code of federated mutual learning (Shen
    et al. 2020); McMahan et al. (2017), section 3, "2NN".
    """

    dense_units: ClassVar[tuple[int, ...]] = (200, 200)
