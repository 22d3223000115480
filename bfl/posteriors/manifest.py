"""Manifest: where the network's parameters lie in a posterior's vectors, and how they begin."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior
from bfl.texts import from_json

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

    def raised(self, posterior: Posterior) -> Posterior:
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
