"""What a prior is, and the two forms that its density may have."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bfl.parts import Arrays, Part
from bfl.posteriors import Posterior
from bfl.registry import Registry

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NormalPrior:
    """N(mean, scale²) for every Gaussian parameter: vectors (D,), or one number for all.

    Attributes:
        mean: The means.
        scale: The standard deviations.
    """

    mean: npt.NDArray[np.floating] | float
    scale: npt.NDArray[np.floating] | float


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

    def cross_entropy(self, mean: Array, variance: Array) -> float:
        """Return −E_q[log p] up to its constant for q = N(mean, variance), in nats."""
        shift = mean - self.centre
        terms = 0.5 * self.precision * (np.square(shift) + variance) - self.slope * shift
        return float(terms.sum())


Density = NormalPrior | QuadraticPrior


class Prior(Part):
    """The p(θ) that a variational client's loss compares its posterior with."""

    @abstractmethod
    def density(self, received: Posterior, state: Arrays) -> Density:
        """Return the prior of a round.

        Args:
            received: The global posterior that the client has received this round.
            state: The client's state, for a prior that has one.
        """


priors: Registry[Prior] = Registry("prior", "bfl.priors")
