"""Natural parameters of Gaussians: products and quotients of densities are sums and differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Vector

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NaturalParameters:
    """D Gaussian densities, or factors of densities, exp(ηᵀθ − ½ θᵀ diag(Λ) θ), up to a constant.

    A factor need not be a density: its precision may be 0 (it says nothing) or negative (it takes
    certainty away), as that of a quotient or of a difference.

    Attributes:
        weighted_mean: η = Λμ, (D,), float64.
        precision: Λ = 1/σ², (D,), float64.
    """

    weighted_mean: Array
    precision: Array

    @classmethod
    def nothing(cls, size: int) -> NaturalParameters:
        """Return D factors that say nothing."""
        return cls(np.zeros(size), np.zeros(size))

    @classmethod
    def of(cls, mean: Vector, variance: Vector) -> NaturalParameters:
        """Return D Gaussians' parameters, from their means and positive variances, (D,) each."""
        precision = 1.0 / variance.astype(np.float64)
        return cls(precision * mean.astype(np.float64), precision)

    def __add__(self, other: NaturalParameters) -> NaturalParameters:
        return NaturalParameters(
            self.weighted_mean + other.weighted_mean, self.precision + other.precision
        )

    def __sub__(self, other: NaturalParameters) -> NaturalParameters:
        return NaturalParameters(
            self.weighted_mean - other.weighted_mean, self.precision - other.precision
        )

    def __mul__(self, power: float) -> NaturalParameters:
        """Return the natural parameters of the densities to a power."""
        return NaturalParameters(power * self.weighted_mean, power * self.precision)

    __rmul__ = __mul__

    def moments(self) -> tuple[Array, Array]:
        """Return means and variances, (D,) each.

        Raises:
            PosteriorError: A precision is not positive, so that no Gaussian has it.
        """
        bad = int(np.count_nonzero(~(self.precision > 0)))
        if bad:
            raise PosteriorError(
                f"{bad} of {self.precision.size} precisions are not positive; no Gaussian has them"
            )
        return self.weighted_mean / self.precision, 1.0 / self.precision


def greatest_step(precision: Array, change: Array, least_share: float) -> float:
    """Return the greatest ρ in [0, 1] with Λ + ρ ΔΛ at least a share of Λ, for all parameters.

    Args:
        precision: Λ, (D,), positive.
        change: ΔΛ, (D,), of any sign.
        least_share: The share of its precision that every parameter keeps, in [0, 1).
    """
    falls = change < 0
    if not falls.any():
        return 1.0
    room = (1.0 - least_share) * precision[falls] / -change[falls]
    return float(min(1.0, room.min()))
