"""Point weights: the ordinary network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bfl.learning.inferences.base import Inference, Layer, Padding, inferences

if TYPE_CHECKING:
    from bfl.learning.networks.parameters import ParameterVariables


@inferences.register("deterministic")
class Deterministic(Inference):
    """Point weights: the ordinary network.

    Source: Fischer et al. (2024), section 3.2, Fig. 1 (a); He et al. (2016).
    """

    predictor: ClassVar[str] = "deterministic"
    stochastic_prediction: ClassVar[bool] = False

    def convolution(
        self, filters: int, kernel_size: int, *, strides: int, name: str, padding: Padding = "same"
    ) -> Layer:
        """Return a Keras convolution."""
        from bfl.keras import keras

        layer: Layer = keras.layers.Conv2D(
            filters, kernel_size, strides=strides, padding=padding, name=name
        )
        return layer

    def dense(self, units: int, *, name: str, output: bool = False) -> Layer:
        """Return a Keras dense layer."""
        from bfl.keras import keras

        layer: Layer = keras.layers.Dense(units, name=name)
        return layer

    def parameters(self, layer: Any) -> list[ParameterVariables]:
        """Return the kernel and the bias of a convolution, depthwise or not, or a dense layer."""
        from bfl.keras import keras
        from bfl.learning.networks.parameters import ParameterVariables

        if isinstance(layer, keras.layers.DepthwiseConv2D):
            return [
                ParameterVariables(
                    f"{layer.name}/kernel", "he-normal-depthwise", value=layer.depthwise_kernel
                ),
                ParameterVariables(f"{layer.name}/bias", "zeros", value=layer.bias),
            ]
        if not isinstance(layer, keras.layers.Conv2D | keras.layers.Dense):
            return []
        return [
            ParameterVariables(f"{layer.name}/kernel", self.initial_means, value=layer.kernel),
            ParameterVariables(f"{layer.name}/bias", "zeros", value=layer.bias),
        ]
