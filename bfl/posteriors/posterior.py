"""A posterior over a network's parameters: what is trained, sent and pooled, as flat vectors."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from bfl.errors import PosteriorError

Vector = npt.NDArray[np.floating]

VECTORS = ("mean", "variance", "point")


@dataclass(frozen=True)
class Posterior:
    """A mean-field Gaussian over D parameters, besides P parameters that have only a point value.

    Batch normalisation's scale, offset and moving statistics are point parameters, and so are all
    the weights of deterministic and Monte Carlo dropout networks, where D is 0.

    Attributes:
        variance: (D,), the squared standard deviations.
    """

    mean: Vector
    variance: Vector
    point: Vector = field(default_factory=lambda: np.zeros(0, np.float32))
    _found_sound: bool = field(default=False, init=False, repr=False, compare=False)

    @classmethod
    def of_vectors(cls, vectors: Mapping[str, Vector]) -> Posterior:
        """Return the posterior of three vectors by their names; PosteriorError of any others."""
        if set(vectors) != set(VECTORS):
            given = ", ".join(sorted(vectors)) or "none"
            raise PosteriorError(f"the arrays are {given}; expected {', '.join(VECTORS)}")
        return cls(**vectors)

    @property
    def size(self) -> int:
        """The number D of Gaussian parameters."""
        return int(self.mean.size)

    @property
    def degree_of_spread(self) -> float:
        """The Euclidean norm of all standard deviations, √(Σ_d σ_d²); 0 without any.

        Source: Ozer et al. (2022), section 4, "Empirical degree of spread", and Table 4.
        """
        return float(np.sqrt(self.variance.sum(dtype=np.float64)))

    @property
    def known_sound(self) -> bool:
        """True if ``check`` has found the values sound, and nobody can have changed them since."""
        return self._found_sound and self._is_read_only

    @property
    def _is_read_only(self) -> bool:
        return not any(vector.flags.writeable for vector in self.vectors().values())

    def check(self, like: Posterior | None = None) -> None:
        """Raise a PosteriorError unless values are finite, variances positive, sizes those given.

        The values of a posterior that is ``known_sound`` are not looked at again.
        """
        self.check_form(*((like.size, like.point.size) if like else (self.size, self.point.size)))
        if self.known_sound:
            return
        for name, vector in self.vectors().items():
            if not between(-math.inf, vector, math.inf):
                bad = vector.size - np.count_nonzero(np.isfinite(vector))
                of = vector.size
                raise PosteriorError(f"{name} has {bad} of {of} values that are not finite")
        if not between(0.0, self.variance, math.inf):
            bad = np.count_nonzero(self.variance <= 0)
            raise PosteriorError(f"variance has {bad} of {self.size} values that are not positive")
        object.__setattr__(self, "_found_sound", self._is_read_only)

    def check_form(self, size: int, points: int) -> None:
        """Raise a PosteriorError unless means and variances are floats (size,), points alike."""
        for name, expected in zip(VECTORS, (size, size, points), strict=True):
            vector = getattr(self, name)
            if vector.ndim != 1:
                raise PosteriorError(f"{name} has shape {vector.shape}; expected one dimension")
            if vector.dtype.kind != "f":
                raise PosteriorError(f"{name} has type {vector.dtype}; expected floating point")
            if vector.size != expected:
                raise PosteriorError(f"{name} has {vector.size} values; expected {expected}")

    def vectors(self) -> dict[str, Vector]:
        """Return the three vectors by name."""
        return {name: getattr(self, name) for name in VECTORS}

    def digest(self) -> str:
        """Return the SHA-256 of the three vectors' bits (as float32, little-endian)."""
        sha = hashlib.sha256()
        for vector in self.vectors().values():
            sha.update(np.ascontiguousarray(vector, dtype="<f4").tobytes())
            sha.update(b"|")
        return sha.hexdigest()


def between(low: float, values: Vector, high: float) -> bool:
    """Return whether all values lie between the bounds and are none of them; True of none."""
    # NaN is the least and the greatest of an array that has one, and fails both comparisons.
    return not values.size or bool(
        np.minimum.reduce(values) > low and np.maximum.reduce(values) < high
    )


SCALE_FLOOR = 1e-5
"""The least σ by default: 84 times the ε in σ = ε + softplus(ρ), TensorFlow Probability's.

Some rules divide the variance in every round, without end. Near ε training cannot undo that: there
∂σ/∂ρ = 1 − exp(ε − σ) is next to 0.
"""

FRACTION_AT_FLOOR = "fraction-at-scale-floor"


def with_scale_floor(posterior: Posterior, floor: float) -> tuple[Posterior, dict[str, float]]:
    """Return a posterior with smaller deviations raised to a floor, and the fraction at it."""
    if not 0.0 <= floor < math.inf:
        raise ValueError(f"the floor of standard deviations is {floor}; expected at least 0")
    if not floor or not posterior.size:
        return posterior, {}
    least = np.asarray(floor**2, posterior.variance.dtype)
    at_floor = np.count_nonzero(posterior.variance <= least) / posterior.size
    if at_floor:
        posterior = replace(posterior, variance=np.maximum(posterior.variance, least))
    return posterior, {FRACTION_AT_FLOOR: at_floor}


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
        """Return means and variances, (D,) each; PosteriorError if a precision is not positive."""
        if bad := int(np.count_nonzero(~(self.precision > 0))):
            raise PosteriorError(f"{bad} of {self.precision.size} precisions are not positive")
        return self.weighted_mean / self.precision, 1.0 / self.precision


def greatest_step(precision: Array, change: Array, least_share: float) -> float:
    """Return the greatest ρ in [0, 1] with Λ + ρ ΔΛ at least a share of Λ > 0, vectors (D,)."""
    room, fall = (1.0 - least_share) * precision, -change
    beyond = fall > room  # elsewhere ρ = 1 leaves enough, and room / fall might overflow
    return float(np.min(room[beyond] / fall[beyond], initial=1.0))
