"""Posteriors and predictions as the arrays of a file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.archives import ArrayFile, Shapes
from bfl.closing.conformal import SETS
from bfl.closing.feature_density import SCORES
from bfl.evaluation.prediction.predictions import IntArray, Predictions
from bfl.evaluation.uncertainty.base import measure_all
from bfl.posteriors.manifest import Manifest
from bfl.posteriors.posterior import Posterior

_TEXT: Shapes = {"manifest": ()}


def posterior_arrays(posterior: Posterior, manifest: Manifest) -> dict[str, npt.NDArray[Any]]:
    """Return a posterior's vectors, by their names, and the manifest of them."""
    return {**posterior.vectors(), "manifest": np.array(manifest.to_json())}


def posterior_of(arrays: ArrayFile) -> tuple[Posterior, Manifest]:
    """Return the posterior of such arrays, checked, and its manifest.

    Raises:
        KeyError: An array is missing.
        PosteriorError: They are no posterior.
        ValueError: The vectors do not fit the manifest.
    """
    try:
        manifest = Manifest.from_json(str(arrays.checked(["manifest"], shapes=_TEXT)["manifest"]))
        gaussian, point = manifest.gaussian_size, manifest.point_size
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its manifest is none: {type(error).__name__}: {error}") from error
    shapes = {"mean": (gaussian,), "variance": (gaussian,), "point": (point,)}
    posterior = Posterior(**arrays.checked(shapes, shapes=shapes))
    posterior.check()
    return posterior, manifest


def predictions_arrays(
    predictions: Predictions, labels: npt.ArrayLike, settings: Mapping[str, Any]
) -> dict[str, npt.NDArray[Any]]:
    """Return predictions in full precision, and what every uncertainty measures of them.

    Args:
        predictions: For N examples of C classes.
        labels: (N,) their true classes.
        settings: The configuration, of which each uncertainty takes its own keys.
    """
    return {
        "labels": np.asarray(labels, dtype=np.int64),
        "mean_probability": predictions.mean_probability,
        "log_mean_probability": predictions.log_mean_probability,
        "predicted": predictions.predicted,
        "samples": np.array(predictions.samples),
        **measure_all(predictions, settings),
        **predictions.sets,
    }


def predictions_of(arrays: ArrayFile) -> tuple[Predictions, IntArray]:
    """Return the predictions of such arrays, and the labels (N,).

    Raises:
        KeyError: An array is missing.
        ValueError: They do not go together.
    """
    of_classes = ("mean_probability", "log_mean_probability")
    shape = arrays.header(of_classes[0]).shape
    scores = [name for name in SCORES if name in arrays]
    of_examples = ("expected-entropy", "aleatoric", "epistemic", "labels", *scores)
    sets = [name for name in SETS if name in arrays]
    shapes = dict.fromkeys((*of_classes, *sets), shape) | dict.fromkeys(of_examples, shape[:1])
    found = arrays.checked([*shapes, "samples"], shapes={**shapes, "samples": ()})
    predictions = Predictions(
        mean_probability=found["mean_probability"],
        log_mean_probability=found["log_mean_probability"],
        expected_entropy=found["expected-entropy"],
        aleatoric=found["aleatoric"],
        epistemic=found["epistemic"],
        samples=int(found["samples"]),
        scores={name: found[name] for name in scores},
        sets={name: found[name].astype(np.bool_) for name in sets},
    )
    return predictions, found["labels"].astype(np.int64)
