"""What a prior is, and the two forms that its density may have."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bfl.federation.parts import Arrays, Part
from bfl.posteriors import Posterior
from bfl.registry import Registry

Array = npt.NDArray[np.float64]

LEAST_PRECISION = 1e-30
"""A precision nearer to 0 counts as 0: its standard deviation would be beyond float32."""


@dataclass(frozen=True)
class Standardized:
    """What both forms are to a network: all vectors (D,), or numbers that stand for all.

    KL[q ‖ p] = Σ ½ (g (σ² + (μ − c)²) / r² − 1) − log(σ / r) − s (μ − c), and a constant.

    Attributes:
        centre: c.
        scale: r, positive: the prior's standard deviation where it has one.
        sign: g: 1 where the prior is a density, and else 0 or −1.
        slope: s.
        constant: What makes a divergence of it where all are densities.
    """

    centre: npt.NDArray[np.floating] | float
    scale: npt.NDArray[np.floating] | float
    sign: npt.NDArray[np.floating] | float = 1.0
    slope: npt.NDArray[np.floating] | float = 0.0
    constant: float = 0.0


@dataclass(frozen=True)
class NormalPrior:
    """N(mean, scale²) for every Gaussian parameter: vectors (D,), or one number for all.

    Attributes:
        mean: The means.
        scale: The standard deviations.
    """

    mean: npt.NDArray[np.floating] | float
    scale: npt.NDArray[np.floating] | float

    def standardized(self) -> Standardized:
        """Return it around its mean, in its standard deviations."""
        return Standardized(self.mean, self.scale)


@dataclass(frozen=True)
class QuadraticPrior:
    """−log p(θ) = ½ Λ (θ − c)² − s (θ − c) + const, for every Gaussian parameter.

    It need not be a density: a precision may be 0 or negative. Around a centre near θ the two terms
    keep the digits that ½ Λ θ² and Λ μ θ would lose in float32.

    Attributes:
        centre: c, (D,).
        slope: s, (D,), float64.
        precision: Λ, (D,), float64.
    """

    centre: npt.NDArray[np.floating]
    slope: Array
    precision: Array

    def standardized(self) -> Standardized:
        """Return it around its centre; the constant is that of all densities among the D."""
        sign = np.where(np.abs(self.precision) < LEAST_PRECISION, 0.0, np.sign(self.precision))
        scale = 1.0 / np.sqrt(np.where(sign == 0, 1.0, np.abs(self.precision)))
        proper = sign > 0
        constant = 0.5 * np.sum(np.square(self.slope[proper] * scale[proper]))
        return Standardized(self.centre, scale, sign, self.slope, float(constant))


Density = NormalPrior | QuadraticPrior


class Prior(Part):
    """The p(θ) that a variational client's loss compares its posterior with."""

    def first_posterior(self, initial: Posterior) -> Posterior:
        """Return the global posterior before the first round.

        By default it is where the network begins by itself, whatever the prior says.

        Args:
            initial: The network's own initial posterior.
        """
        return initial

    @abstractmethod
    def density(self, received: Posterior, state: Arrays) -> Density:
        """Return the prior of a round.

        Args:
            received: The global posterior that the client has received this round.
            state: The client's state, for a prior that has one.
        """


priors: Registry[Prior] = Registry("prior", "bfl.learning.priors")
