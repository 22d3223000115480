"""Variational inference with the local reparameterization trick: activations are drawn."""

from __future__ import annotations

from bfl.learning.inferences.base import Layer, Padding, inferences
from bfl.learning.inferences.variational import VariationalInference


@inferences.register("reparameterization", aliases=("local-reparameterization",))
class Reparameterization(VariationalInference):
    """Variational inference: a Gaussian over every weight and bias, its activations drawn.

    A layer's output is Gaussian given its input x, with mean x μ + μ_b and variance x² σ² + σ_b²;
    each output of each example is drawn from that by itself, the local reparameterization trick. It
    is exact for dense layers. The outputs of a convolution share weights, so they are correlated
    over the places of an image, which the trick leaves out; ``variational-layers`` = "dense" has
    variational dense layers alone, as Ozer et al. have.

    Ozer et al. train a mean and a log-variance α, σ² = exp(α): ``scale-parametrization`` =
    "log-variance". By default the parameters are a mean and TensorFlow Probability's ρ,
    σ = ε + softplus(ρ), as for all variational inferences. Pooling does not see the difference,
    since it works on means and variances. Training does: for small σ, dσ/dρ is σ and dσ/dα is σ/2,
    so a step of gradient descent at the same rate moves log σ² four times as far by ρ as by α.

    Source: Kingma et al. (2015), "Variational dropout and the local reparameterization trick",
    section 2.3, Eq. 6; Ozer et al. (2022), appendix 6.1, with the prior N(0, 1): ``prior-scale`` =
    1. The papers are silent on the initial standard deviation; the code of Ozer et al. begins at
    α = −9, σ = 0.011, clamps α to [−8, 8] in the forward pass (``log-variance-clamp``), and has
    biases without a variance (``biases``) and means from N(0, 1/fan-in) (``initial-means``).
    """

    def variational_convolution(
        self, filters: int, kernel_size: int, *, strides: int, name: str, padding: Padding
    ) -> Layer:
        """Return a convolution whose outputs are drawn."""
        from bfl.learning.networks.reparameterized_layers import ReparameterizedConvolution2D

        return ReparameterizedConvolution2D(
            filters, kernel_size, strides=strides, padding=padding, name=name, form=self.form
        )

    def dense(self, units: int, *, name: str, output: bool = False) -> Layer:
        """Return a dense layer whose outputs are drawn."""
        from bfl.learning.networks.reparameterized_layers import ReparameterizedDense

        return ReparameterizedDense(units, name=name, form=self.form)
