"""Predictions of a run's posterior for given images, which are checked first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.reading import Reading
from bfl.data.images import Images, as_pixels
from bfl.errors import DataError
from bfl.evaluation.prediction.predictions import FloatArray, IntArray


def checked_images(
    given: npt.ArrayLike, shape: tuple[int, int, int], settings: Mapping[str, Any] | None = None
) -> Images:
    """Return images (N, H, W, C) as a network takes them, or raise DataError.

    Args:
        given: Images (N, H, W, C), or (N, H, W) where C is 1, of uint8, or floats of 0 to 1.
        shape: Height, width and channels of the images that the network takes.
        settings: The run's configuration; where it has ``pixel-range``, all are on that scale.
    """
    try:
        images = np.asarray(given)
    except ValueError as error:  # a ragged list
        raise DataError(f"images cannot be made an array: {error}") from error
    expected = f"expected (N, {', '.join(map(str, shape))})"
    if shape[2] == 1:
        expected += f" or (N, {shape[0]}, {shape[1]})"
        if images.shape[1:] == shape[:2]:
            images = images[..., np.newaxis]
    if images.shape[1:] != shape:
        hint = ""
        if images.shape in (shape, shape[: 3 - (shape[2] == 1)]):
            hint = "; a single image needs an axis more: images[np.newaxis]"
        elif images.ndim == 4 and images.shape[1:] == (shape[2], shape[0], shape[1]):
            hint = "; channels come last: images.transpose(0, 2, 3, 1)"
        raise DataError(f"images have shape {np.shape(given)}; {expected}{hint}")
    if not len(images):
        raise DataError(f"images are empty: they have shape {images.shape}; {expected}, N >= 1")
    return as_pixels({"images": images}, Reading.of(settings or {}).pixel_range)["images"]


@dataclass(frozen=True)
class Predictions:
    """Predictions for N images of C classes.

    Attributes:
        mean_probability: (N, C) probabilities, averaged over the samples of the posterior.
        log_mean_probability: (N, C) their logarithms, finite where a probability underflows.
        predicted: (N,) the class of the highest mean probability, from 0.
        uncertainty: (N,) of each registered uncertainty, by its name (``epistemic``, ...).
        samples: The number M of samples.
        class_names: One name per class.
        sets: (N, C) of each kind of prediction set, by its name (``conformal``, ...): which classes
            are in an image's.
        familiarity: (N,) the share of examples that clients have held back which are less like the
            training data, in [0, 1]; None where the run's closing round has not found it.
        warnings: N tuples of what is unusual about each row or image; mostly empty.
    """

    mean_probability: FloatArray
    log_mean_probability: FloatArray
    predicted: IntArray
    uncertainty: Mapping[str, FloatArray]
    samples: int
    class_names: tuple[str, ...]
    sets: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    familiarity: FloatArray | None = None
    warnings: tuple[tuple[str, ...], ...] = ()

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
            **({} if self.familiarity is None else {"familiarity": self.familiarity}),
        }
