"""The divergence from a prior, inside the graph, and the variables that hold the prior."""

from __future__ import annotations

from typing import Any

import numpy as np

from bfl.keras import tf
from bfl.learning.priors import Standardized


def divergence(mean: Any, deviation: Any, centre: Any, scale: Any) -> Any:
    """Return KL[N(μ, σ²) ‖ N(c, r²)] = Σ log(r/σ) + (σ² + (μ − c)²) / 2r² − 1/2, a tensor ().

    One expression over one vector of all parameters: a graph of a dozen operations instead of a
    dozen per parameter.

    Args:
        mean: μ, (D,).
        deviation: σ, (D,).
        centre: c, (D,).
        scale: r, (D,).
    """
    ratio = deviation / scale
    terms = tf.square(ratio) + tf.square((mean - centre) / scale) - 1.0
    return tf.reduce_sum(0.5 * terms - tf.math.log(ratio))


class PriorVariables:
    """A prior of D parameters in variables, so that it may change without another trace."""

    def __init__(self, size: int) -> None:
        def vector(value: float) -> Any:
            return tf.Variable(tf.fill([size], value), trainable=False)

        self._centre, self._scale, self._sign, self._slope = map(vector, (0.0, 1.0, 1.0, 0.0))
        self._constant = tf.Variable(0.0, trainable=False)
        self._density = tf.Variable(True, trainable=False)

    def assign(self, prior: Standardized) -> None:
        """Set the prior."""
        density = bool(np.all(np.equal(prior.sign, 1.0)) and not np.any(prior.slope))
        self._density.assign(density)
        values = [(self._centre, prior.centre), (self._scale, prior.scale)]
        if not density:
            values += [(self._sign, prior.sign), (self._slope, prior.slope)]
        for variable, value in [*values, (self._constant, prior.constant)]:
            variable.assign(np.broadcast_to(np.asarray(value, np.float32), variable.shape))

    def divergence(self, mean: Any, deviation: Any) -> Any:
        """Return KL[q ‖ p], up to a constant where p is no density; (D,) each."""

        def beyond_a_density() -> Any:
            shift = mean - self._centre
            distance = tf.square(deviation / self._scale) + tf.square(shift / self._scale)
            return tf.reduce_sum(0.5 * (self._sign - 1.0) * distance - self._slope * shift)

        # As long as the divergence itself, and 0 for densities that are centred at their means.
        rest = tf.cond(self._density, lambda: tf.zeros([]), beyond_a_density)
        return divergence(mean, deviation, self._centre, self._scale) + rest + self._constant
