"""What a network's weights are: points, points under dropout, or distributions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from bfl.learning.networks.parametrizations import SOFTPLUS, Parametrization
from bfl.posteriors.manifest import KernelInitialization
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from bfl.learning.networks.parameters import ParameterVariables

Layer = Callable[[Any], Any]
"""A Keras layer, or several in a row: takes a symbolic tensor, gives a symbolic tensor."""

Padding = Literal["same", "valid"]
"""Zeros around a convolution's images so that it keeps their size (over the strides), or none."""


class Inference(Component):
    """A way of learning and using a network's weights; it makes the layers that have some.

    An architecture (``bfl.learning.models``) asks it for convolutions and dense layers and does not
    know what it gets, so every architecture exists in every inference.

    Kernels begin as ``initial-means`` says, but for those of depthwise convolutions and, where
    dense layers alone are variational, of convolutions: both begin as He et al.'s (2015). Biases
    begin at 0.
    """

    gaussian: ClassVar[bool] = False
    """Whether it learns a Gaussian posterior over the weights."""

    predictor: ClassVar[str]
    """The inference whose network predicts with one drawn θ: a layer of plain weights suffices
    once the weights have been drawn."""

    stochastic_prediction: ClassVar[bool] = True
    """Whether two predictions differ, so that more than one Monte Carlo sample makes sense."""

    initial_means: KernelInitialization = Field(
        "he-normal",
        description="how kernels begin, or the means of Gaussian ones: N(0, 2/fan-in), "
        "N(0, 1/fan-in), or uniform within the square root of 6/(fan-in + fan-out)",
    )

    def has(self) -> frozenset[str]:
        """Return whether there are Gaussians."""
        return frozenset({"gaussian", "clients-to-draw-from"}) if self.gaussian else frozenset()

    @abstractmethod
    def convolution(
        self, filters: int, kernel_size: int, *, strides: int, name: str, padding: Padding = "same"
    ) -> Layer:
        """Return a 2-D convolution with a bias."""

    def depthwise_convolution(self, kernel_size: int, *, strides: int, name: str) -> Layer:
        """Return a 2-D convolution of each channel by itself, padded to "same", with a bias.

        Its weights are points in every inference: no library has a variational layer for it.
        """
        from bfl.keras import keras

        layer: Layer = keras.layers.DepthwiseConv2D(
            kernel_size, strides=strides, padding="same", name=name
        )
        return layer

    @abstractmethod
    def dense(self, units: int, *, name: str, output: bool = False) -> Layer:
        """Return a dense layer with a bias; ``output`` marks the one that gives the logits."""

    @abstractmethod
    def parameters(self, layer: Any) -> list[ParameterVariables]:
        """Return the weights of one layer that it made, in a fixed order; [] for other layers."""

    @property
    def initial_standard_deviation(self) -> float:
        """The standard deviation that Gaussian parameters begin with; meaningless without any."""
        return 1.0

    @property
    def parametrization(self) -> Parametrization:
        """What its networks hold for the variances of Gaussian parameters."""
        return SOFTPLUS


inferences: Registry[Inference] = Registry("inference", "bfl.learning.inferences")
