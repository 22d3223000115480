"""Predictions of a run's posterior for given images."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.errors import RunError
from bfl.evaluation.prediction.predictions import FloatArray, IntArray
from bfl.files import given_path, write_atomically


@dataclass(frozen=True)
class Predictions:
    """Predictions for N images of C classes.

    Attributes:
        mean_probability: (N, C) probabilities, averaged over the samples of the posterior.
        log_mean_probability: (N, C) their logarithms in nats, finite where a probability is 0 by
            underflow.
        predicted: (N,) the class of the highest mean probability, from 0.
        uncertainty: (N,) of each registered uncertainty, by its name (``epistemic``, ...).
        samples: The number M of samples.
        class_names: One name per class.
        sets: (N, C) of each kind of prediction set, by its name (``conformal``, ...): which classes
            are in an image's; none where the run's closing round has found none.
    """

    mean_probability: FloatArray
    log_mean_probability: FloatArray
    predicted: IntArray
    uncertainty: Mapping[str, FloatArray]
    samples: int
    class_names: tuple[str, ...]
    sets: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number N of images."""
        return len(self.predicted)

    @property
    def predicted_names(self) -> tuple[str, ...]:
        """The name of the predicted class of each image."""
        return tuple(self.class_names[index] for index in self.predicted)

    @property
    def confidence(self) -> FloatArray:
        """The (N,) mean probabilities of the predicted classes, in [1/C, 1]."""
        return np.asarray(self.mean_probability.max(axis=1))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all as arrays by name, as in a run's ``predictions.npz``, and the class names."""
        return {
            "mean_probability": self.mean_probability,
            "log_mean_probability": self.log_mean_probability,
            "predicted": self.predicted,
            "samples": np.array(self.samples),
            "class_names": np.array(self.class_names),
            **self.uncertainty,
            **self.sets,
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write ``arrays`` as a NumPy archive (.npz), and return its path.

        Raises:
            RunError: The file cannot be written.
        """
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **self.arrays())  # type: ignore[arg-type]
        target = given_path(path, "path")
        try:
            write_atomically(target, buffer.getvalue())
        except OSError as error:
            raise RunError(f"cannot write {target}: {error.strerror or error}") from error
        return target
