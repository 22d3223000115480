"""A least standard deviation for pooled posteriors, so that training can move them again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bfl.posteriors.posterior import Posterior

SCALE_FLOOR = 1e-5
"""The least σ by default: 84 times the ε in σ = ε + softplus(ρ), TensorFlow Probability's.

Some rules divide the variance in every round, without end. Near ε training cannot undo that: there
∂σ/∂ρ = 1 − exp(ε − σ) is next to 0, and what is left of the gradient is less than Adam's ε. The
divergence from a wide prior raises log σ by a share (σ − ε) / σ of what it does far above ε. In
1,000 steps of Adam at a rate of 0.001 and 5,000 examples, it was raised by 0.00 from the float32
next to ε, by 0.69 from 2ε, 0.94 from 1e-6, 0.993 from 1e-5, and by 0.998 from 1e-4; with stochastic
gradient descent the shares are the same. Also, a draw μ + σz of a weight |μ| < 10 can be told from
μ in float32 where σ is 1e-5, and cannot where it is ε.
"""

FRACTION_AT_FLOOR = "fraction-at-scale-floor"
"""The name under which a round's record tells it."""


@dataclass(frozen=True)
class Floored:
    """A posterior whose standard deviations are not below a floor.

    Attributes:
        posterior: The posterior.
        diagnostics: What there is to tell of it: ``fraction-at-scale-floor``, the share of its
            Gaussian parameters that lie at the floor, if it has any and there is a floor.
    """

    posterior: Posterior
    diagnostics: dict[str, float] = field(default_factory=dict)


def with_scale_floor(posterior: Posterior, floor: float) -> Floored:
    """Return a posterior with every smaller standard deviation raised to a floor.

    Args:
        posterior: The posterior; it is left as it is.
        floor: The least standard deviation, at least 0; 0 changes nothing.

    Raises:
        ValueError: The floor is negative or not finite.
    """
    if not 0.0 <= floor < float("inf"):
        raise ValueError(f"the floor of standard deviations is {floor}; expected at least 0")
    if not floor or not posterior.size:
        return Floored(posterior)
    least = np.asarray(floor**2, posterior.variance.dtype)
    at_floor = np.count_nonzero(posterior.variance <= least) / posterior.size
    if at_floor:
        raised = np.maximum(posterior.variance, least)
        posterior = replace(posterior, variance=raised)
    return Floored(posterior, {FRACTION_AT_FLOOR: at_floor})
