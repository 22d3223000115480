"""The command ``bfl predict``: a run's posterior on images of your own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bfl.api import Predictions, load
from bfl.api.predictions import checked_images, save_arrays
from bfl.api.result import POSTERIORS, PREDICT
from bfl.commands.image_files import USUAL_NAMES, read_images, read_pictures
from bfl.commands.terminal import check_new, path_argument
from bfl.data.datasets.folder import SUFFIXES as PICTURES
from bfl.data.datasets.pixels import dark_pixels
from bfl.data.datasets.reading import Reading
from bfl.data.datasets.table import SUFFIXES, read_table
from bfl.errors import DataError
from bfl.evaluation.multilabel import LabelPredictions
from bfl.evaluation.regression import Mixtures
from bfl.experiments.results.table import results_table
from bfl.texts import printable

SHOWN = 10
"""Predictions that are printed, at most."""

SCORES = ("predictive-entropy", "epistemic", "feature-density")
"""Uncertainties that are printed; the file has all."""


def add_to(predict: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl predict``."""
    predict.add_argument("folder", type=path_argument, metavar="FOLDER", help="the run's folder")
    predict.add_argument(
        "--data",
        type=path_argument,
        required=True,
        metavar="FILE",
        help="a NumPy archive (.npz) or array (.npy) of images (N, H, W, C): integers of 0 to 255, "
        "or floats of 0 to 1; a folder of image files, or one of them; or a table (.csv, .parquet) "
        "with the columns of the run's",
    )
    predict.add_argument(
        "--array",
        default="",
        metavar="NAME",
        help=f"the array of images (default: {' or '.join(USUAL_NAMES)}, or the only one)",
    )
    predict.add_argument(
        "--output",
        type=path_argument,
        metavar="FILE",
        help="what gets the predictions, a new .npz file (default: NAME-predictions.npz, here)",
    )
    add_prediction_to(predict)
    predict.set_defaults(run=predict_images)


def add_prediction_to(command: argparse.ArgumentParser) -> None:
    """Add the options that say which posterior predicts, and by how many samples."""
    command.add_argument(
        "--samples",
        type=int,
        metavar="M",
        help="Monte Carlo samples (default: as in the run's final evaluation, which may be at the "
        "posterior's mean)",
    )
    command.add_argument(
        "--posterior",
        choices=POSTERIORS,
        default="last",
        help="that of the last round, of the best one on the server's own images, or of the last "
        "so far of a run that was interrupted",
    )


def predict_images(given: argparse.Namespace) -> None:
    """Predict images, write all that is predicted, and print the first."""
    result = load(given.folder, given.posterior)
    output = given.output or Path(f"{given.data.resolve().stem}-predictions.npz")
    check_new(output)
    unclear = "say by --array which of them are the images"
    table = given.data.suffix.lower() in SUFFIXES
    if result.takes_rows and not table:
        raise DataError(
            f"{given.data} is no table, and {given.folder} was made on one; allowed: "
            f"{' or '.join(SUFFIXES)}"
        )
    if table and not result.takes_rows:
        raise DataError(f"{given.data} is a table, and {given.folder} was made on images")
    # What is wrong with the run's folder is not said of the images.
    height, width, channels = result.image_shape
    _ = result.posterior
    images: Any
    files: tuple[str, ...] = ()
    if table:
        images = read_table(given.data)
    elif given.data.is_dir() or given.data.suffix.lower() in PICTURES:
        size = height if height == width else 0
        reading = replace(Reading.of(result.configuration), size=size, channels=channels)
        files, images = read_pictures(given.data, reading)
        if images.dtype.kind == "f":
            images = images / 255
    else:
        images = read_images(given.data, given.array, unclear=unclear)
    try:
        if not table:
            for line in dark_pixels(str(given.data), checked_images(images, result.image_shape)):
                print(line)
        if result.task != "classification":
            predict = getattr(result, PREDICT[result.task])
            _print_task(predict(images, samples=given.samples), result.class_names, files, output)
            return
        predictions = result.predict(images, samples=given.samples)
    except DataError as error:
        raise DataError(f"{given.data}: {error}") from error
    Console().print(results_table(_rows(predictions, files), "Predictions"))
    if len(predictions) > SHOWN:
        print(f"and {len(predictions) - SHOWN} more")
    print(f"{len(predictions)} predictions of {predictions.samples} samples: ", end="")
    named = {"files": np.array(files)} if files else {}
    print(save_arrays({**predictions.arrays(), **named}, output))


def _print_task(
    predictions: Mixtures | LabelPredictions,
    names: Sequence[str],
    files: Sequence[str],
    output: Path,
) -> None:
    """Write predictions of another task, and print the first with their uncertainty."""
    whole, *_ = predictions.ranked_by
    total = predictions.uncertainty[whole]

    def answer(index: int) -> dict[str, Any]:
        if isinstance(predictions, Mixtures):
            return {"mean": predictions.mean[index], "deviation": total[index] ** 0.5}
        found = ", ".join(np.array(names)[predictions.predicted[index]])
        return {"labels": printable(found) or "–", whole: total[index]}

    rows = [
        {"row": printable(files[index]) if files else index, **answer(index)}
        for index in range(min(SHOWN, predictions.examples))
    ]
    Console().print(results_table(rows, "Predictions"))
    print(f"{predictions.examples} predictions of {predictions.samples} samples: ", end="")
    named = {"files": np.array(files)} if files else {}
    print(save_arrays({**predictions.arrays(), **named}, output))


def _rows(predictions: Predictions, files: Sequence[str]) -> list[dict[str, Any]]:
    """Return the first predictions as rows of a table."""
    return [
        {
            "image": printable(files[index]) if files else index,
            "class": predictions.predicted_names[index],
            "probability": predictions.confidence[index],
            **{
                name: predictions.uncertainty[name][index]
                for name in SCORES
                if name in predictions.uncertainty
            },
        }
        for index in range(min(SHOWN, len(predictions)))
    ]
