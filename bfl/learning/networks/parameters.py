"""The Keras variables behind one entry of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bfl.posteriors.manifest import Initialization, Parameter


@dataclass(frozen=True)
class ParameterVariables:
    """The Keras variables behind one entry of a manifest.

    Attributes:
        name: The entry's name.
        initialization: How its mean or value begins.
        value: The variable of the mean μ, or of the point value.
        untransformed_scale: The variable of ρ, σ = ε + softplus(ρ), or of log σ²; None for points.
        minimum: The least value of a point parameter, where it has one.
    """

    name: str
    initialization: Initialization
    value: Any
    untransformed_scale: Any = None
    minimum: float | None = None

    @property
    def parameter(self) -> Parameter:
        """The manifest's entry."""
        return Parameter(
            name=self.name,
            shape=tuple(int(n) for n in self.value.shape),
            gaussian=self.untransformed_scale is not None,
            initialization=self.initialization,
            minimum=self.minimum,
            trainable=bool(self.value.trainable),
        )
