"""The test images that are predicted with the most and the least certainty, kept to be looked at.

The run's folder gets a few images of its test set, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bfl.data.images import Images
from bfl.evaluation.prediction import Predictions
from bfl.evaluation.uncertainty import (
    uncertainties,
)
from bfl.experiments.results.run_folder import EXAMPLES, RunFolder

BY = "predictive-entropy"
"""The uncertainty that images are chosen by: the one that holds all of it."""


MOST = 8
"""Images of either kind, at most."""


@dataclass(frozen=True)
class Examples:
    """Test images, from the most certain prediction to the least certain one.

    Attributes:
        positions: (n,) positions in the run's test set.
        images: (n, H, W, C) images.
        labels: (n,) true classes.
        predicted: (n,) predicted classes.
        uncertainty: (n,) uncertainties of the predictions, by ``BY``.
    """

    positions: npt.NDArray[np.int64]
    images: Images
    labels: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    uncertainty: npt.NDArray[np.float64]


def write_examples(
    folder: RunFolder,
    predictions: Predictions,
    images: Images,
    labels: npt.ArrayLike,
) -> None:
    """Write the most and the least certain test images, as many of either, into a run's folder.

    Of images that are equally uncertain the first in the test set comes first.

    Args:
        predictions: The predictions for N test images.
        images: (N, H, W, C) the images.
        labels: (N,) true classes.

    Raises:
        RunError: The file cannot be written.
    """
    ranks = uncertainties.create(BY).measure(predictions)
    order = np.argsort(ranks, kind="stable")
    of_each = min(MOST, len(order) // 2)
    chosen = np.concatenate([order[:of_each], order[len(order) - of_each :]])
    arrays = {
        "positions": chosen,
        "images": images[chosen],
        "labels": np.asarray(labels, np.int64)[chosen],
        "predicted": predictions.predicted[chosen],
        "uncertainty": ranks[chosen],
    }
    folder.write_arrays(EXAMPLES, arrays)


def read_examples(folder: RunFolder) -> tuple[Examples, Examples]:
    """Return the most certain images of a run and the least certain ones, both in ascending order.

    Raises:
        DataError: The file is missing or corrupt.
    """
    names = tuple(Examples.__dataclass_fields__)
    with folder.reading_arrays(EXAMPLES) as held:
        arrays = held.checked(names, rows="positions")
        count = len(arrays["positions"])
        if arrays["images"].ndim != 4:
            raise ValueError("the arrays do not go together")
        certain, uncertain = (
            Examples(**{name: arrays[name][part] for name in names})
            for part in (slice(None, count // 2), slice(count // 2, None))
        )
    return certain, uncertain
