"""Predictions of tasks other than classification, which bring their own metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Answers = npt.NDArray[np.floating]
"""True answers: numbers (N,), or 1 for each label that applies and else 0, (N, L)."""


class TaskPredictions(ABC):
    """Predictions for N examples by M Monte Carlo samples, and everything that is said of them.

    Attributes:
        ranked_by: Uncertainties that examples are left out by in retention curves, the whole first.
        samples: The number M of Monte Carlo samples.
    """

    file: ClassVar[str]
    ranked_by: ClassVar[tuple[str, ...]]
    samples: int

    @property
    @abstractmethod
    def examples(self) -> int:
        """The number N of examples."""

    @property
    @abstractmethod
    def uncertainty(self) -> Mapping[str, FloatArray]:
        """The (N,) uncertainties by name, ``aleatoric`` and ``epistemic`` among them."""

    @abstractmethod
    def values(self, answers: Answers) -> Mapping[str, tuple[FloatArray, bool]]:
        """Return the (N,) values of each metric with retention curves, and if higher is better."""

    @abstractmethod
    def metrics(self, answers: Answers) -> dict[str, float]:
        """Return all metrics by name."""

    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all as arrays by name."""
