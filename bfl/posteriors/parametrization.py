"""TensorFlow Probability's σ = ε + softplus(ρ), its inverse, and the same for the variance.

The Flipout layers hold an untransformed scale ρ; everything outside a network holds a variance.
All four functions work in float64 and return float64, whatever comes in, because float32 cannot
tell σ = ε from the σ just above it; the caller rounds at the end.

Source: TensorFlow Probability, ``tfp.layers.default_mean_field_normal_fn``, whose untransformed
scale passes through ``np.finfo(dtype).eps + tf.nn.softplus(untransformed_scale)``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EPSILON = float(np.finfo(np.float32).eps)
"""ε: the float32 machine epsilon that TensorFlow Probability adds, so that σ stays positive."""

SMALLEST_SCALE = float(np.nextafter(np.float32(EPSILON), np.float32(1)))
"""The smallest σ that has an inverse here: the float32 next above ε."""


def scale_from_untransformed(rho: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the standard deviation σ = ε + softplus(ρ).

    Args:
        rho: Untransformed scales ρ, of any shape.

    Returns:
        Standard deviations in that shape, at least ε, finite for every finite ρ.
    """
    # logaddexp(0, ρ) is log(1 + exp(ρ)) without the overflow of exp.
    return EPSILON + np.logaddexp(0.0, np.asarray(rho, np.float64))


def untransformed_from_scale(sigma: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the untransformed scale ρ = log(exp(σ − ε) − 1).

    No ρ gives σ <= ε. Such a σ is clipped to ``SMALLEST_SCALE``, the float32 next above ε, whose ρ
    is about −32; softplus is so flat there that training hardly moves it.

    Args:
        sigma: Standard deviations σ, of any shape.

    Returns:
        Untransformed scales in that shape, finite for every finite σ; NaN stays NaN.
    """
    excess = np.maximum(np.asarray(sigma, np.float64), SMALLEST_SCALE) - EPSILON
    # exp(x) − 1 overflows for a large x, and log(exp(x)) loses a small one; x + log(1 − exp(−x))
    # does neither.
    return np.asarray(excess + np.log(-np.expm1(-excess)))


def variance_from_untransformed(rho: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the variance (ε + softplus(ρ))², in the shape of ``rho``."""
    return np.square(scale_from_untransformed(rho))


def untransformed_from_variance(variance: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the untransformed scale ρ of a variance, in its shape.

    Variances that are not above ε² are clipped as in ``untransformed_from_scale``.
    """
    return untransformed_from_scale(np.sqrt(np.maximum(np.asarray(variance, np.float64), 0.0)))
