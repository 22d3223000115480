"""A small Bayesian network: its posterior is known by central sampling, in predictions alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from benchmarks.fidelity.problems import SIZES, Array, Classifier, Simulated, with_drawn_labels
from bfl.posteriors import Posterior

HIDDEN, INPUTS = 4, 2
"""Units of the hidden layer, and inputs beside the 1 of its bias."""

FIT_STEPS, FIT_RATE, FIT_DECAY = 300, 0.2, 0.98
"""Steps of a client's variational fit, the share of a Newton step in its first one, and β₂."""


class Network(Classifier):
    """Two classes with log-odds vᵀ tanh(Wx) + c, and weights θ = (W by rows, v, c).

    Signs and order of the hidden units make no difference, so weights have many posteriors alike,
    of which a Gaussian is near one. All fits begin at the same draw of the prior, as the clients of
    a federation do.
    """

    newton_share: ClassVar[float] = 0.5

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers S and d."""
        return len(self.targets), HIDDEN * (INPUTS + 2) + 1

    @cached_property
    def start(self) -> Array:
        """Weights (S, d) at which fits begin."""
        drawn = np.random.default_rng(HIDDEN).standard_normal(self.shape[1])
        return np.broadcast_to(drawn, self.shape)

    def logits(self, weights: Any, features: Array, xp: Any = np) -> Any:
        """Return 0 and the log-odds vᵀ tanh(Wx) + c."""
        *_, outer, bias = _layers(weights, xp)
        hidden = self.hidden(weights, features, xp)
        log_odds = xp.einsum("...snh,...sh->...sn", hidden, outer) + bias
        return xp.stack([xp.zeros_like(log_odds), log_odds], axis=-1)

    def hidden(self, weights: Any, features: Array, xp: Any = np) -> Any:
        """Return what the last layer takes (..., S, N, H)."""
        return xp.tanh(xp.einsum("...shi,ni->...snh", _layers(weights, xp)[0], features))

    def derivatives(self, weights: Array) -> tuple[Array, Array]:
        """Return the gradient, and Jᵀ diag(p(1 − p)) J in place of the Hessian (Gauss-Newton)."""
        _, outer, _ = _layers(weights)
        hidden = self.hidden(weights, self.features)
        inner = (1.0 - hidden**2) * outer[:, None, :]
        products = inner[..., None] * self.features[:, None, :]
        by_row = products.reshape(*hidden.shape[:2], -1)
        jacobian = np.concatenate([by_row, hidden, np.ones((*hidden.shape[:2], 1))], axis=2)
        residual, p = self.residuals(weights)
        spread = p[..., 0] * p[..., 1]
        gradient = np.einsum("sn,snd->sd", residual[..., 1], jacobian)
        return gradient, (jacobian * spread[..., None]).swapaxes(1, 2) @ jacobian

    def mean_field(self, weighted_mean: Array, precision: Array) -> Posterior:
        """Return a diagonal Gaussian of a low KL[q ‖ posterior], by IVON's steps.

        They begin at the prior's mean where it has one, and else at ``start``.
        """
        scale = len(self.features)
        mean = weighted_mean / precision if weighted_mean.any() else self.start
        mean, found = self.ivon(
            mean,
            (precision + scale / 4) / scale,
            scale,
            (weighted_mean / scale, precision / scale),
            FIT_RATE * (1.0 + np.cos(np.pi * np.arange(FIT_STEPS) / FIT_STEPS)) / 2,
            np.random.default_rng(scale),
            decay=FIT_DECAY,
        )
        return Posterior(mean.ravel(), 1.0 / (scale * found).ravel())


def _layers(weights: Any, xp: Any = np) -> tuple[Any, Any, Any]:
    """Return W (..., H, I + 1), v (..., H) and c (..., 1) of weights (..., d)."""
    cut = HIDDEN * (INPUTS + 1)
    shape = (*weights.shape[:-1], HIDDEN, INPUTS + 1)
    first = weights[..., :cut]
    return xp.reshape(first, shape), weights[..., cut:-1], weights[..., -1:]


def network(data_sets: int, generator: np.random.Generator) -> Simulated:
    """Return data sets of networks drawn from the prior, with inputs of deviation 2."""
    inputs = [network_features(size, generator) for size in SIZES]
    empty = Network(inputs[0], np.zeros((data_sets, 0)))
    weights = generator.standard_normal(empty.shape)
    clients = [with_drawn_labels(replace(empty, features=x), weights, generator) for x in inputs]
    return Simulated(tuple(clients), weights)


def network_features(size: int, generator: np.random.Generator) -> Array:
    """Return inputs (N, 3) of the network, with a 1 behind for the bias."""
    drawn = 2.0 * generator.standard_normal((size, INPUTS))
    return np.concatenate([drawn, np.ones((size, 1))], axis=1)
