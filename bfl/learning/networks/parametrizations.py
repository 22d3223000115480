"""Parametrizations of a layer's variances: ρ with σ = ε + softplus(ρ), log σ², or σ₀² / σ²."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]

EPSILON = float(np.finfo(np.float32).eps)  # ε, which TensorFlow Probability adds to softplus(ρ)
SMALLEST_SCALE = float(np.nextafter(np.float32(EPSILON), np.float32(1)))  # that has an inverse here


class Parametrization(ABC):
    """A bijection between variances and the unconstrained numbers that training moves."""

    @abstractmethod
    def variance(self, untransformed: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the variances of what a network holds, in that shape."""

    @abstractmethod
    def untransformed(self, variance: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return what a network holds for variances, in their shape; finite if they are."""

    @abstractmethod
    def posterior_fn(self) -> Callable[..., Any]:
        """Return what makes a layer's Gaussian, in the form that TensorFlow Probability's take."""

    def used_variance(self, variance: Array) -> Array:
        """Return the variances that a network computes with where the posterior has these."""
        return variance


@dataclass(frozen=True)
class Softplus(Parametrization):
    """σ = ε + softplus(ρ), TensorFlow Probability's.

    Source: TensorFlow Probability, ``tfp.layers.default_mean_field_normal_fn``, whose untransformed
    scale passes through ``np.finfo(dtype).eps + tf.nn.softplus(untransformed_scale)``.
    """

    def variance(self, untransformed: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return (ε + softplus(ρ))², at least ε², finite for every finite ρ."""
        # logaddexp(0, ρ) is log(1 + exp(ρ)) without the overflow of exp.
        return np.square(EPSILON + np.logaddexp(0.0, np.asarray(untransformed, np.float64)))

    def untransformed(self, variance: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return ρ = log(exp(σ − ε) − 1), finite for every finite σ²; NaN stays NaN.

        No ρ gives σ <= ε: such a σ is clipped to ``SMALLEST_SCALE``, whose ρ is about −32.
        """
        sigma = np.sqrt(np.maximum(np.asarray(variance, np.float64), 0.0))
        excess = np.maximum(sigma, SMALLEST_SCALE) - EPSILON
        # exp(x) − 1 overflows for a large x, and log(exp(x)) loses a small one;
        # x + log(1 − exp(−x)) does neither.
        return np.asarray(excess + np.log(-np.expm1(-excess)))

    def posterior_fn(self) -> Callable[..., Any]:
        """Return TensorFlow Probability's own; it begins at 0, since a posterior is loaded."""
        from bfl.keras import tfp

        made: Callable[..., Any] = tfp.layers.default_mean_field_normal_fn(
            loc_initializer="zeros", untransformed_scale_initializer="zeros"
        )
        return made


@dataclass(frozen=True)
class LogVariance(Parametrization):
    """α = log σ², clamped to [−c, c] wherever the network computes with it; c = 0: not clamped.

    What lies outside has no gradient, neither of the likelihood nor of the divergence: only weight
    decay moves it. The posterior, and so what is sent and pooled, has exp(α) as it is held.

    Source: Ozer et al. (2022), section 3, "as an implementation trick [...] we use α = log σ²";
    their published code (``VBLinear``) for the clamp, with c = 8.
    """

    clamp: float = 0.0

    def variance(self, untransformed: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return exp(α)."""
        return np.exp(np.asarray(untransformed, np.float64))

    def untransformed(self, variance: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return α; of what is not above the smallest normal float32, that one's."""
        least = float(np.finfo(np.float32).tiny)
        return np.log(np.maximum(np.asarray(variance, np.float64), least))

    def posterior_fn(self) -> Callable[..., Any]:
        """Return a maker of Normals whose scale is exp(α/2), of the clamped α."""
        from bfl.keras import tf

        def deviation(alpha: Any) -> Any:
            inside = tf.clip_by_value(alpha, -self.clamp, self.clamp) if self.clamp else alpha
            return tf.exp(0.5 * inside)

        return _normals("log_variance", "zeros", deviation)

    def used_variance(self, variance: Array) -> Array:
        """Return the variances within [exp −c, exp c]."""
        if not self.clamp:
            return variance
        low, high = np.exp(np.array([-self.clamp, self.clamp])).astype(variance.dtype)
        return np.clip(variance, low, high)


@dataclass(frozen=True)
class RelativePrecision(Parametrization):
    """u = σ₀² / σ², the precision in units of that with which training begins."""

    initial_scale: float

    def variance(self, untransformed: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return σ₀² / u."""
        return self.initial_scale**2 / np.asarray(untransformed, np.float64)

    def untransformed(self, variance: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return u; of a variance that is too small for it, the greatest float32."""
        greatest = float(np.finfo(np.float32).max)
        least = self.initial_scale**2 / greatest
        given = np.asarray(variance, np.float64)
        return np.where(given > least, self.initial_scale**2 / np.maximum(given, least), greatest)

    def posterior_fn(self) -> Callable[..., Any]:
        """Return a maker of Normals whose scale is σ₀ / √u."""
        from bfl.keras import tf

        return _normals("precision", "ones", lambda u: self.initial_scale * tf.math.rsqrt(u))


def _normals(held: str, initializer: str, deviation: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a maker of Normals; ``held`` names the variable that stands for the scale."""
    from bfl.keras import tf, tfp

    def make(dtype: Any, shape: Any, name: str, trainable: bool, add: Any) -> Any:
        kind = {"shape": shape, "dtype": dtype, "trainable": trainable}
        mean, untransformed = (
            add(name=f"{name}_{part}", initializer=begun, **kind)
            for part, begun in (("loc", "zeros"), (held, initializer))
        )
        scale = tfp.util.DeferredTensor(untransformed, deviation)
        normal = tfp.distributions.Normal(loc=mean, scale=scale)
        return tfp.distributions.Independent(
            normal, reinterpreted_batch_ndims=tf.size(normal.batch_shape_tensor())
        )

    return make


SOFTPLUS = Softplus()
