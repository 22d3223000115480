"""Posteriors and predictions as the arrays of a file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.evaluation.prediction.predictions import IntArray, Predictions
from bfl.evaluation.uncertainty.base import measure_all
from bfl.experiments.results.files import Arrays
from bfl.posteriors.manifest import Manifest
from bfl.posteriors.posterior import Posterior


def posterior_arrays(posterior: Posterior, manifest: Manifest) -> dict[str, npt.NDArray[Any]]:
    """Return a posterior's vectors, by their names, and the manifest of them."""
    return {**posterior.vectors(), "manifest": np.array(manifest.to_json())}


def posterior_of(arrays: Arrays) -> tuple[Posterior, Manifest]:
    """Return the posterior of such arrays, checked, and its manifest.

    Raises:
        KeyError: An array is missing.
        PosteriorError: They are no posterior.
        ValueError: The vectors do not fit the manifest.
    """
    manifest = Manifest.from_json(str(arrays["manifest"]))
    posterior = Posterior(arrays["mean"], arrays["variance"], arrays["point"])
    posterior.check()
    if (posterior.size, posterior.point.size) != (manifest.gaussian_size, manifest.point_size):
        raise ValueError("the vectors do not fit the manifest")
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
    }


def predictions_of(arrays: Arrays) -> tuple[Predictions, IntArray]:
    """Return the predictions of such arrays, and the labels (N,).

    Raises:
        KeyError: An array is missing.
        ValueError: The labels are not as many.
    """
    predictions = Predictions(
        mean_probability=arrays["mean_probability"],
        log_mean_probability=arrays["log_mean_probability"],
        expected_entropy=arrays["expected-entropy"],
        aleatoric=arrays["aleatoric"],
        epistemic=arrays["epistemic"],
        samples=int(arrays["samples"]),
    )
    labels: IntArray = arrays["labels"].astype(np.int64)
    if labels.shape != (predictions.examples,):
        raise ValueError(f"labels have shape {labels.shape}")
    return predictions, labels
