"""Inferences: a network's weights as points, points under dropout, or distributions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from bfl.learning.networks.parametrizations import (
    SOFTPLUS,
    LogVariance,
    Parametrization,
    RelativePrecision,
)
from bfl.posteriors.posterior import KernelInitialization
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from bfl.learning.networks.layers import Form, ParameterVariables


Layer = Callable[[Any], Any]  # one of Keras', or several in a row: from tensor to tensor
Layers = tuple[Callable[..., Layer], Callable[..., Layer]]  # convolutions' maker, and dense ones'
Padding = Literal["same", "valid"]


class Inference(Component):
    """A way of learning and using a network's weights; it makes the layers that have some.

    An architecture (``bfl.learning.models``) asks it for convolutions and dense layers and does not
    know what it gets, so every architecture exists in every inference.

    Kernels begin as ``initial-means`` says, but for those of depthwise convolutions and of the
    point layers of a variational network: they begin as He et al.'s (2015). Biases begin at 0.
    """

    gaussian: ClassVar[bool] = False  # whether it learns a Gaussian posterior over the weights
    fits_variances: ClassVar[bool] = False  # whether they are fitted to points after training
    predictor: ClassVar[str]  # the inference whose network predicts with one drawn θ
    stochastic_prediction: ClassVar[bool] = True  # whether two predictions differ

    initial_means: KernelInitialization = "he-normal"
    """how kernels begin, or the means of Gaussian ones: N(0, 2/fan-in), N(0, 1/fan-in), or uniform
    within the square root of 6/(fan-in + fan-out)"""

    def has(self) -> frozenset[str]:
        """Return what Gaussians there are, and that a client's likelihood is of its examples."""
        gaussian = {"gaussian", "clients-to-draw-from"} if self.gaussian else set()
        fitted = {"fitted-variances"} if self.fits_variances else set()
        return frozenset({"own-likelihood", *gaussian, *fitted})

    @property
    def counts_all_examples(self) -> bool:
        """True if a client's likelihood counts as many examples as all clients have."""
        return False

    @abstractmethod
    def convolution(
        self, filters: int, kernel_size: int, *, strides: int, name: str, padding: Padding = "same"
    ) -> Layer:
        """Return a 2-D convolution with a bias."""

    def depthwise_convolution(self, kernel_size: int, *, strides: int, name: str) -> Layer:
        """Return a 2-D convolution of each channel by itself, with a bias, of point weights."""
        from bfl.keras import keras

        shape: Any = {"strides": strides, "padding": "same", "name": name}
        layer: Layer = keras.layers.DepthwiseConv2D(kernel_size, **shape)
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
        """Parametrization of the variances of Gaussian parameters in its networks."""
        return SOFTPLUS


inferences: Registry[Inference] = Registry("inference", "bfl.learning.inferences")


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

        shape: Any = {"strides": strides, "padding": padding, "name": name}
        layer: Layer = keras.layers.Conv2D(filters, kernel_size, **shape)
        return layer

    def dense(self, units: int, *, name: str, output: bool = False) -> Layer:
        """Return a Keras dense layer."""
        from bfl.keras import keras

        layer: Layer = keras.layers.Dense(units, name=name)
        return layer

    def parameters(self, layer: Any) -> list[ParameterVariables]:
        """Return the kernel and the bias of a convolution, depthwise or not, or a dense layer."""
        from bfl.keras import keras
        from bfl.learning.networks.layers import ParameterVariables

        kernel, bias = f"{layer.name}/kernel", f"{layer.name}/bias"
        if isinstance(layer, keras.layers.DepthwiseConv2D):
            made = ParameterVariables(kernel, "he-normal-depthwise", value=layer.depthwise_kernel)
        elif isinstance(layer, keras.layers.Conv2D | keras.layers.Dense):
            made = ParameterVariables(kernel, self.initial_means, value=layer.kernel)
        else:
            return []
        return [made, ParameterVariables(bias, "zeros", value=layer.bias)]


class VariationalInference(Inference):
    """Gaussians over the weights and biases of all layers, of the dense ones, or of the last.

    With ``variational-layers`` = "dense" convolutions have point weights, as in Ozer et al. (2022),
    appendix 6.1: "we replace linear layers with variational Bayesian linear layers". With "last"
    every layer has but the one that gives the logits.
    """

    gaussian: ClassVar[bool] = True
    predictor: ClassVar[str] = "deterministic"

    initial_scale: float = Field(0.05, gt=1e-6, le=10.0)
    """standard deviation that every weight begins with"""
    variational_layers: Literal["all", "dense", "last"] = "all"
    """which layers' weights are Gaussian; the others have point weights"""

    biases: Literal["gaussian", "point"] = "gaussian"
    """what the biases of variational layers are"""

    @property
    def form(self) -> Form:
        """Form of its layers' weights."""
        from bfl.learning.networks.layers import Form

        point_biases, drawn = self.biases == "point", not self.fits_variances
        return Form(self.parametrization, point_biases, self.initial_means, drawn)

    @property
    def initial_standard_deviation(self) -> float:
        """The standard deviation that Gaussian parameters begin with."""
        return self.initial_scale

    def convolution(
        self, filters: int, kernel_size: int, *, strides: int, name: str, padding: Padding = "same"
    ) -> Layer:
        """Return a convolution that is variational if all layers are, and else a plain one."""
        shape: Any = {"strides": strides, "padding": padding, "name": name}
        if self.variational_layers != "all":
            return Deterministic().convolution(filters, kernel_size, **shape)
        make, _ = self.layers()
        return make(filters, kernel_size, form=self.form, **shape)

    def dense(self, units: int, *, name: str, output: bool = False) -> Layer:
        """Return a dense layer, variational unless the last alone is and this is another."""
        if self.variational_layers == "last" and not output:
            return Deterministic().dense(units, name=name)
        _, make = self.layers()
        return make(units, name=name, form=self.form)

    @abstractmethod
    def layers(self) -> Layers:
        """Return what makes its variational layers."""

    def parameters(self, layer: Any) -> list[ParameterVariables]:
        """Return the kernel's and the bias's variables, with those of their priors if they vary."""
        from bfl.learning.networks.layers import VariationalLayer

        if isinstance(layer, VariationalLayer):
            return layer.parameters()
        return Deterministic().parameters(layer)


class GradientVariationalInference(VariationalInference):
    """Variational inference whose scales move along their gradients, as means do."""

    scale_parametrization: Literal["softplus", "log-variance"] = "softplus"
    """what training moves: ρ with σ = ε + softplus(ρ), or the log-variance"""
    log_variance_clamp: float = Field(0.0, ge=0.0, le=80.0)
    """c, log-variances being clamped to [-c, c] in the forward pass, where they have no gradient
    outside; 0: not clamped"""

    @field_validator("log_variance_clamp")
    @classmethod
    def _clamp_has_log_variances(cls, clamp: float, info: ValidationInfo) -> float:
        if clamp and info.data.get("scale_parametrization") == "softplus":
            raise ValueError("0, unless scale-parametrization is 'log-variance'")
        return clamp

    @property
    def parametrization(self) -> Parametrization:
        """Parametrization of the variances in training."""
        if self.scale_parametrization == "softplus":
            return SOFTPLUS
        return LogVariance(self.log_variance_clamp)


@inferences.register("flipout", aliases=("variational",))
class Flipout(GradientVariationalInference):
    """Variational inference: a Gaussian over every weight and bias, trained with Flipout.

    The layers are TensorFlow Probability's, with random numbers that are keyed instead of stateful.

    Source: Wen et al. (2018); Fischer et al. (2024), section 3.2, Fig. 1 (c). The default initial
    scale is about that of TensorFlow Probability's layers, softplus(−3) = 0.049.
    """

    def layers(self) -> Layers:
        """Return TensorFlow Probability's Flipout layers."""
        from bfl.learning.networks.layers import KeyedConvolution2DFlipout, KeyedDenseFlipout

        return KeyedConvolution2DFlipout, KeyedDenseFlipout


@inferences.register("mc-dropout", aliases=("monte-carlo-dropout",))
class MonteCarloDropout(Deterministic):
    """Point weights under dropout that stays on when predicting.

    Source: Gal and Ghahramani (2016); Fischer et al. (2024), section 3.2, Fig. 1 (b): after each
    convolutional and linear layer, so also of logits.
    """

    predictor: ClassVar[str] = "mc-dropout"
    stochastic_prediction: ClassVar[bool] = True

    dropout_rate: float = Field(0.2, ge=0.0, lt=1.0)
    """share of units dropped"""

    def _drop_out(self, layer: Layer, name: str) -> Layer:
        from bfl.learning.networks.layers import KeyedDropout

        dropout = KeyedDropout(self.dropout_rate, name=f"{name}_dropout")
        return lambda inputs: dropout(layer(inputs))

    def convolution(self, filters: int, kernel_size: int, *, name: str, **shape: Any) -> Layer:
        """Return a convolution followed by dropout."""
        return self._drop_out(super().convolution(filters, kernel_size, name=name, **shape), name)

    def depthwise_convolution(self, kernel_size: int, *, strides: int, name: str) -> Layer:
        """Return a depthwise convolution followed by dropout."""
        plain = super().depthwise_convolution(kernel_size, strides=strides, name=name)
        return self._drop_out(plain, name)

    def dense(self, units: int, *, name: str, output: bool = False) -> Layer:
        """Return a dense layer followed by dropout."""
        return self._drop_out(super().dense(units, name=name, output=output), name)


@inferences.register("reparameterization", aliases=("local-reparameterization",))
class Reparameterization(GradientVariationalInference):
    """Variational inference: a Gaussian over every weight and bias, its activations drawn.

    A layer's output is Gaussian given its input x, with mean x μ + μ_b and variance x² σ² + σ_b²;
    each output of each example is drawn by itself. That is exact for dense layers; outputs of a
    convolution share weights, and their correlation over the places of an image is left out.

    Ozer et al. have variational dense layers alone (``variational-layers`` = "dense") and train
    α = log σ² (``scale-parametrization`` = "log-variance"). For small σ a step of gradient descent
    moves log σ² four times as far by TensorFlow Probability's ρ, the default, as by α.

    Source: Kingma et al. (2015), "Variational dropout and the local reparameterization trick",
    section 2.3, Eq. 6; Ozer et al. (2022), appendix 6.1, with ``prior-scale`` = 1. Their code
    begins at α = −9, σ = 0.011, clamps α to [−8, 8] in the forward pass (``log-variance-clamp``),
    and has biases without a variance (``biases``) and means from N(0, 1/fan-in).
    """

    def layers(self) -> Layers:
        """Return layers whose outputs are drawn."""
        from bfl.learning.networks.layers import ReparameterizedConvolution2D, ReparameterizedDense

        return ReparameterizedConvolution2D, ReparameterizedDense


@inferences.register("ivon", aliases=("improved-variational-online-newton",))
class ImprovedVariationalOnlineNewton(VariationalInference):
    """A Gaussian over every weight and bias, with one draw of all weights a batch.

    A step takes one convolution a layer, as with points, and two with Flipout. It goes with the
    optimizer of the same name, whose estimate of the Hessian stands for the precision.

    Clients begin at h₀ = 1/(λ ``initial-scale``²) − δ; see the optimizer.

    Source: Shen et al. (2024), "Variational learning is effective for large deep networks",
    Algorithm 1; Pal et al. (2025), FedIvon, for a federation.
    """

    initial_scale: float = Field(0.014, gt=1e-6, le=10.0)
    """standard deviation that every weight begins with"""
    likelihood_examples: Literal["federation", "client"] = "federation"
    """whose training examples a client's likelihood counts, λ: all clients', for pools by shares,
    or its own, for pools of products"""

    def has(self) -> frozenset[str]:
        """Return that networks hold precisions, and whose examples the likelihood counts."""
        own = {"own-likelihood"} if self.likelihood_examples == "client" else set()
        return super().has() - {"own-likelihood"} | {"held-precisions"} | own

    def requires(self) -> frozenset[str]:
        """Return what moves precisions, as well."""
        return super().requires() | {"newton-steps"}

    @property
    def counts_all_examples(self) -> bool:
        """True if λ is the number of all clients' training examples."""
        return self.likelihood_examples == "federation"

    @property
    def parametrization(self) -> Parametrization:
        """Precisions in units of the initial one."""
        return RelativePrecision(self.initial_scale)

    def layers(self) -> Layers:
        """Return layers with one draw of their weights a batch."""
        from bfl.learning.networks.layers import DrawnConvolution2D, DrawnDense

        return DrawnConvolution2D, DrawnDense


@inferences.register("laplace", aliases=("laplace-approximation",))
class Laplace(VariationalInference):
    """Weights trained as points, with Gaussians around them that are fitted after training.

    Once a client has trained, a weight's variance is 1 / (F / T + 1/σ₀²), with F the Fisher
    information of its examples on that weight, T ``temperature`` and σ₀ ``initial-scale``. As for
    points, means have no prior: 1/σ₀² is the precision of one around what was learnt.

    A Laplace approximation is one at a mode, which local training does not reach. The information
    is the Hessian but for the network's own curvature. Correlations are left out.

    Source: Daxberger et al. (2021), "Laplace Redux: effortless Bayesian deep learning", section 2;
    Ritter et al. (2018), "A scalable Laplace approximation for neural networks".
    """

    fits_variances: ClassVar[bool] = True

    def layers(self) -> Layers:
        """Return layers that compute with their means, by the form."""
        from bfl.learning.networks.layers import DrawnConvolution2D, DrawnDense

        return DrawnConvolution2D, DrawnDense
