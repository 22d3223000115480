"""What all variational inferences share: which layers they make Gaussian, and how those begin."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from bfl.learning.inferences.base import Inference, Layer, Padding
from bfl.learning.inferences.deterministic import Deterministic
from bfl.learning.networks.parametrizations import SOFTPLUS, LogVariance, Parametrization

if TYPE_CHECKING:
    from bfl.learning.networks.layers import Form
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

    scale_parametrization: Literal["softplus", "log-variance"] = Field(
        "softplus",
        description="what training moves: ρ with σ = ε + softplus(ρ), or the log-variance",
    )
    log_variance_clamp: float = Field(
        0.0,
        ge=0.0,
        le=80.0,
        description="c, log-variances being clamped to [-c, c] in the forward pass, where they "
        "have no gradient outside; 0: not clamped",
    )
    biases: Literal["gaussian", "point"] = Field(
        "gaussian", description="what the biases of variational layers are"
    )

    @field_validator("log_variance_clamp")
    @classmethod
    def _clamp_has_log_variances(cls, clamp: float, info: ValidationInfo) -> float:
        if clamp and info.data.get("scale_parametrization") == "softplus":
            raise ValueError("0, unless scale-parametrization is 'log-variance'")
        return clamp

    @property
    def parametrization(self) -> Parametrization:
        """What training moves in place of variances."""
        if self.scale_parametrization == "softplus":
            return SOFTPLUS
        return LogVariance(self.log_variance_clamp)

    @property
    def form(self) -> Form:
        """What the weights of its layers are."""
        from bfl.learning.networks.layers import Form

        return Form(self.parametrization, self.biases == "point", self.initial_means)

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
