"""Variational inference: a Gaussian over every weight and bias, trained with Flipout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from bfl.inferences.base import Inference, Layer, inferences

if TYPE_CHECKING:
    from bfl.networks.parameters import ParameterVariables


@inferences.register("flipout", aliases=("variational",))
class Flipout(Inference):
    """Variational inference: a Gaussian over every weight and bias, trained with Flipout.

    The layers are TensorFlow Probability's, with random numbers that are keyed instead of stateful.

    Source: Wen et al. (2018); Fischer et al. (2024), section 3.2, Fig. 1 (c). The papers are silent
    on the initial standard deviation; the default is about that of TensorFlow Probability's layers
    (σ = softplus(−3) = 0.049).
    """

    gaussian: ClassVar[bool] = True
    predictor: ClassVar[str] = "deterministic"

    initial_scale: float = Field(
        0.05, gt=1e-6, le=10.0, description="standard deviation that every weight begins with"
    )

    @property
    def initial_standard_deviation(self) -> float:
        """The standard deviation that Gaussian parameters begin with."""
        return self.initial_scale

    def convolution(self, filters: int, kernel_size: int, *, strides: int, name: str) -> Layer:
        """Return TensorFlow Probability's Flipout convolution."""
        from bfl.networks.layers import KeyedConvolution2DFlipout

        return KeyedConvolution2DFlipout(
            filters, kernel_size, strides=strides, padding="same", name=name
        )

    def dense(self, units: int, *, name: str, output: bool = False) -> Layer:
        """Return TensorFlow Probability's dense Flipout layer."""
        from bfl.networks.layers import KeyedDenseFlipout

        return KeyedDenseFlipout(units, name=name)

    def parameters(self, layer: Any) -> list[ParameterVariables]:
        """Return the kernel's and the bias's variables, with those of their priors."""
        from bfl.networks.layers import VariationalLayer

        return layer.parameters() if isinstance(layer, VariationalLayer) else []
