"""What all variational inferences share: which layers they make Gaussian, and how those begin."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from bfl.learning.inferences.base import Inference, Layer, Padding
from bfl.learning.inferences.deterministic import Deterministic

if TYPE_CHECKING:
    from bfl.learning.networks.parameters import ParameterVariables


class VariationalInference(Inference):
    """Gaussians over the weights and biases of all layers, or of the dense ones alone.

    With ``variational-layers`` = "dense" convolutions have point weights, as in Ozer et al. (2022),
    appendix 6.1: "we replace linear layers with variational Bayesian linear layers".
    """

    gaussian: ClassVar[bool] = True
    predictor: ClassVar[str] = "deterministic"

    initial_scale: float = Field(
        0.05, gt=1e-6, le=10.0, description="standard deviation that every weight begins with"
    )
    variational_layers: Literal["all", "dense"] = Field(
        "all", description="which layers' weights are Gaussian; the others have point weights"
    )

    @property
    def initial_standard_deviation(self) -> float:
        """The standard deviation that Gaussian parameters begin with."""
        return self.initial_scale

    def convolution(
        self, filters: int, kernel_size: int, *, strides: int, name: str, padding: Padding = "same"
    ) -> Layer:
        """Return a variational convolution, or a plain one if only dense layers are variational."""
        make = (
            self.variational_convolution
            if self.variational_layers == "all"
            else Deterministic().convolution
        )
        return make(filters, kernel_size, strides=strides, name=name, padding=padding)

    @abstractmethod
    def variational_convolution(
        self, filters: int, kernel_size: int, *, strides: int, name: str, padding: Padding
    ) -> Layer:
        """Return a 2-D convolution whose kernel and bias are Gaussian."""

    def parameters(self, layer: Any) -> list[ParameterVariables]:
        """Return the kernel's and the bias's variables, with those of their priors if they vary."""
        from bfl.learning.networks.layers import VariationalLayer

        if isinstance(layer, VariationalLayer):
            return layer.parameters()
        return Deterministic().parameters(layer)
