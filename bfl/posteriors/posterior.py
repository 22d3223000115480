"""A posterior over a network's parameters as flat vectors, and which parameter lies where."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.errors import PosteriorError
from bfl.texts import from_json

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


KernelInitialization = Literal["he-normal", "lecun-normal", "xavier-uniform"]
Initialization = KernelInitialization | Literal["he-normal-depthwise", "zeros", "ones"]

NORMALS = {"he-normal": 2.0, "he-normal-depthwise": 2.0, "lecun-normal": 1.0}
"""Initializations from N(0, n / fan-in), by n."""


@dataclass(frozen=True)
class Parameter:
    """One tensor of a network, by its path.

    Attributes:
        gaussian: Whether the posterior holds a mean and a variance for it, or a point value.
        initialization: How its mean or value begins; ``he-normal`` is N(0, 2 / fan-in) (He et al.
            2015) and ``lecun-normal`` N(0, 1 / fan-in) (LeCun et al. 1998), fan-in being the
            product of all dimensions but the last; ``xavier-uniform`` is uniform within
            ±√(6 / (fan-in + fan-out)), fan-out being that of all but the last but one (Glorot and
            Bengio 2010, Eq. 16); ``he-normal-depthwise`` is He et al.'s with the fan-in of the
            first two, as each channel sees itself alone.
        minimum: The least value of a point parameter that cannot be any number, such as the 0 of a
            moving variance: it decays to 0 where a channel is silent, and below 0 has no root.
        trainable: Whether training moves it by its gradient: moving statistics it does not.
    """

    name: str
    shape: tuple[int, ...]
    gaussian: bool
    initialization: Initialization
    minimum: float | None = None
    trainable: bool = True

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Manifest:
    """The parameters of a network in the order in which its posterior's vectors hold them."""

    parameters: tuple[Parameter, ...]

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters)

    @cached_property
    def gaussian(self) -> tuple[Parameter, ...]:
        """The parameters with a mean and a variance."""
        return tuple(parameter for parameter in self if parameter.gaussian)

    @cached_property
    def point(self) -> tuple[Parameter, ...]:
        """The parameters with a point value."""
        return tuple(parameter for parameter in self if not parameter.gaussian)

    @cached_property
    def stages(self) -> Mapping[str, int]:
        """The convolutions behind the first that widen the network, and the channels they take."""
        kernels = [each for each in self if len(each.shape) == 4]
        return {
            each.name.rpartition("/")[0]: each.shape[2]
            for each in kernels[1:]
            if each.shape[3] > each.shape[2]
        }

    @cached_property
    def gaussian_size(self) -> int:
        """The length D of the mean and variance vectors."""
        return sum(parameter.size for parameter in self.gaussian)

    @cached_property
    def point_size(self) -> int:
        """The length P of the point vector."""
        return sum(parameter.size for parameter in self.point)

    @cached_property
    def trainable_points(self) -> npt.NDArray[np.bool_]:
        """(P,) which point parameters training moves by their gradient."""
        return np.concatenate(
            [np.zeros(0, bool), *(np.full(p.size, p.trainable) for p in self.point)]
        )

    @cached_property
    def bounded(self) -> npt.NDArray[np.bool_]:
        """(P,) which point parameters have a least value."""
        return self._minima > -math.inf

    @cached_property
    def _minima(self) -> npt.NDArray[np.float64]:
        parts = [np.full(p.size, -math.inf if p.minimum is None else p.minimum) for p in self.point]
        return np.concatenate([np.zeros(0), *parts])

    def check(self, posterior: Posterior) -> None:
        """Raise a PosteriorError unless a posterior has the manifest's sizes and minima."""
        posterior.check_form(self.gaussian_size, self.point_size)
        if not np.any(posterior.point < self._minima):
            return
        points = self.split(posterior.point, gaussian=False)
        for parameter, values in zip(self.point, points, strict=True):
            least = -math.inf if parameter.minimum is None else parameter.minimum
            if bad := int(np.count_nonzero(values < least)):
                raise PosteriorError(
                    f"point parameter '{parameter.name}' has {bad} of {values.size} values below "
                    f"{least:g}, the least {float(values.min()):g}"
                )

    def raise_to_minima(self, posterior: Posterior) -> Posterior:
        """Return a posterior of these sizes with no point parameter below its minimum."""
        point = np.maximum(posterior.point, self._minima).astype(posterior.point.dtype)
        return Posterior(posterior.mean, posterior.variance, point)

    def split(
        self, vector: npt.NDArray[np.floating], *, gaussian: bool
    ) -> list[npt.NDArray[np.floating]]:
        """Return views of a vector, one per parameter and in its shape."""
        parameters = self.gaussian if gaussian else self.point
        ends = np.cumsum([parameter.size for parameter in parameters])
        parts = np.split(vector, ends[:-1]) if parameters else []
        return [part.reshape(p.shape) for part, p in zip(parts, parameters, strict=True)]

    def initial_posterior(self, seed: int, scale: float) -> Posterior:
        """Return the posterior that a federation begins with: keyed by seed and parameter name."""
        mean, point = (
            np.concatenate([np.zeros(0, np.float32), *(draw_initial(p, seed) for p in parameters)])
            for parameters in (self.gaussian, self.point)
        )
        return Posterior(mean, np.full(mean.size, scale**2, np.float32), point)

    def to_json(self) -> str:
        """Return the manifest as JSON."""
        return json.dumps([asdict(parameter) for parameter in self])

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return the manifest that ``to_json`` wrote."""
        rows = from_json(text)
        return cls(tuple(Parameter(**{**row, "shape": tuple(row["shape"])}) for row in rows))

    def digest(self) -> str:
        """Return the SHA-256 of the JSON: two processes agree on the vectors if these agree."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def draw_initial(parameter: Parameter, seed: int) -> npt.NDArray[np.float32]:
    """Return what a parameter's mean or value begins with, keyed by the seed and its name."""
    if parameter.initialization in ("zeros", "ones"):
        return np.full(parameter.size, parameter.initialization == "ones", np.float32)
    generator = randomness.generator(seed, "initialization", parameter.name)
    shape = parameter.shape
    if parameter.initialization == "xavier-uniform":
        fans = math.prod(shape[:-2]) * (shape[-2] + shape[-1])
        limit = math.sqrt(6.0 / fans)
        return generator.uniform(-limit, limit, parameter.size).astype(np.float32)
    depthwise = parameter.initialization == "he-normal-depthwise"
    fan_in = math.prod(shape[: 2 if depthwise else -1])
    deviation = math.sqrt(NORMALS[parameter.initialization] / fan_in)
    return (generator.standard_normal(parameter.size) * deviation).astype(np.float32)


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
