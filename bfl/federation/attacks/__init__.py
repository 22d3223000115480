"""Attacks, to be measured against: what the first few clients send in place of their update."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import Field

from bfl.posteriors import Posterior
from bfl.registry import Component, Registry

CLAIMED_SHARE = 1e-3
"""Standard deviation that an attacker claims, as a share of the one that it has received."""


class Attack(Component):
    """Attack: the posterior that a hostile client sends in place of the one it has learned.

    It goes with no part whose client computes what it keeps from what it has sent: from its second
    round on such a client would not train honestly before it lies.
    """

    active: ClassVar[bool] = True
    """False if it sends what was learned, so that no client is hostile."""

    def has(self) -> frozenset[str]:
        """Return whether updates are corrupted."""
        return frozenset({"corrupted-updates"}) if self.active else frozenset()

    @abstractmethod
    def corrupt(self, learned: Posterior, received: Posterior, generator: Generator) -> Posterior:
        """Return what is sent.

        Args:
            learned: The posterior that honest training has given.
            received: The global posterior that the client was sent.
        """


attacks: Registry[Attack] = Registry("attack", "bfl.federation.attacks")


@attacks.register("none")
class NoAttack(Attack):
    """Nobody is hostile."""

    active: ClassVar[bool] = False

    def corrupt(self, learned: Posterior, received: Posterior, generator: Generator) -> Posterior:
        """Return what has been learned."""
        return learned


@attacks.register("echo")
class Echo(Attack):
    """The global posterior that the client was sent, as if nothing had been learned.

    A free rider's update; no check can tell it from that of a client with nothing to learn. Under
    the weighting ``distance`` its divergence from the previous global posterior is 0, so it owns
    the pool and the federation stands still; two of them own ``max-discrepancy`` together.

    Source: Fraboni et al. (2021), "Free-rider attacks on model aggregation in federated learning",
    there called plain free-riding.
    """

    def corrupt(self, learned: Posterior, received: Posterior, generator: Generator) -> Posterior:
        """Return the received posterior."""
        return received


@attacks.register("noise")
class Noise(Attack):
    """Random means around 0, variances as learned; of networks of points, random points.

    Source: Blanchard et al. (2017), "Machine learning with adversaries", section 5.1: Gaussian
    noise in place of what was learned.
    """

    noise_scale: float = Field(1.0, gt=0.0, description="standard deviation of an attacker's means")

    def corrupt(self, learned: Posterior, received: Posterior, generator: Generator) -> Posterior:
        """Return the learned posterior with normal random means."""
        values = self.noise_scale * generator.standard_normal(learned.size or learned.point.size)
        return _with_values(learned, values.astype(np.float32))


@attacks.register("sign-flip")
class SignFlip(Attack):
    """Means with the opposite sign, variances as learned; of networks of points, negative points.

    Source: Li et al. (2019), "RSA: Byzantine-robust stochastic aggregation", section 5; there the
    sign of what is sent is flipped and it is scaled, here it is flipped alone.
    """

    def corrupt(self, learned: Posterior, received: Posterior, generator: Generator) -> Posterior:
        """Return the learned posterior with negative means."""
        return _with_values(learned, -(learned.mean if learned.size else learned.point))


def _with_values(learned: Posterior, values: np.ndarray) -> Posterior:
    """Return a posterior with other means; without Gaussian parameters, with other points."""
    if learned.size == 0:
        return Posterior(learned.mean, learned.variance, values)
    return Posterior(values, learned.variance, learned.point)


@attacks.register("small-variance")
class SmallVariance(Attack):
    """Random means that are sent as certain: with a tiny variance.

    A rule that weights by the inverse variance takes the attacker's means for the truth. The claim
    is relative to the posterior received: a fixed one would capture the first round only. Networks
    of points have no variance to lie about and send what they have learned.

    Source: none known; it is what equations (15) to (17) of Fischer et al. (2024) invite.
    """

    def corrupt(self, learned: Posterior, received: Posterior, generator: Generator) -> Posterior:
        """Return random means as large as those learned, with a tiny variance."""
        spread = float(np.std(learned.mean)) if learned.size else 0.0
        means = (spread * generator.standard_normal(learned.size)).astype(np.float32)
        claimed = CLAIMED_SHARE**2 * received.variance.astype(np.float64)
        variance = np.maximum(claimed, np.finfo(np.float32).tiny).astype(np.float32)
        return Posterior(means, variance, learned.point)
