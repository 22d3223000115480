"""The commands ``bfl predict`` and ``bfl evaluate``: a finished run on images of your own.

And the files of images, and of their classes, that commands are given.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from bfl.api import Predictions, Result, load
from bfl.api.predictions import checked_images, save_arrays
from bfl.api.result import POSTERIORS, PREDICT
from bfl.archives import ALONE, open_arrays
from bfl.commands.terminal import (
    check_new,
    check_suffix,
    console,
    path_argument,
    plain_warnings,
    write_output,
)
from bfl.data.datasets.folder import SUFFIXES as PICTURES
from bfl.data.datasets.folder import opened_picture
from bfl.data.datasets.pictures import stacked
from bfl.data.datasets.pixels import dark_pixels
from bfl.data.datasets.reading import Reading
from bfl.data.datasets.table import SUFFIXES, read_table
from bfl.data.images import Images
from bfl.errors import ConfigurationError, DataError, unknown_name
from bfl.evaluation.multilabel import LabelPredictions
from bfl.evaluation.regression import LEVEL, Mixtures
from bfl.experiments.results.table import metrics_table, results_table

SHOWN = 10
"""Predictions that are printed, at most."""

SCORES = ("predictive-entropy", "epistemic", "feature-density")
"""Uncertainties that are printed; an archive has all."""

BOUNDS = ("lower", "upper")
"""Bounds of a number's interval."""

NPZ, CSV = ".npz", ".csv"


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
        help="what gets the predictions, a new file: .npz with all that is predicted, or .csv with "
        "the printed table's columns (default: RUN-NAME-predictions.npz, here)",
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


@plain_warnings()
def predict_images(given: argparse.Namespace) -> None:
    """Predict images, write all that is predicted, and print the first."""
    result = load(given.folder, given.posterior)
    names = (given.folder.resolve().name, given.data.resolve().stem)
    output = given.output or Path(f"{'-'.join(names)}-predictions{NPZ}")
    check_suffix("--output", output, NPZ, CSV)
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
        predict = getattr(result, PREDICT[result.task])
        predictions = predict(images, samples=given.samples)
    except DataError as error:
        raise DataError(f"{given.data}: {error}") from error
    # Rows count from 1, as where one is refused; images from 0, as in their array.
    count = len(images)
    first = {"row": range(1, count + 1)} if table else {"image": files or range(count)}
    columns = {**first, **_columns(predictions, result.class_names)}
    _show(columns)
    print(f"{count} predictions of {predictions.samples} samples: ", end="")
    if output.suffix.lower() == CSV:
        from pandas import DataFrame

        text = DataFrame(columns).to_csv(index=False)
        write_output(output, text.encode("utf-8", "surrogateescape"))
        return
    named = {"files": np.array(files)} if files else {}
    bounds = {name: np.asarray(columns[name]) for name in BOUNDS if name in columns}
    print(save_arrays({**predictions.arrays(), **bounds, **named}, output))


def _show(columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> None:
    """Print the first rows of the table of predictions, and how many more there are."""
    shown = {name: values[:SHOWN] for name, values in columns.items()}
    rows = [dict(zip(shown, row, strict=True)) for row in zip(*shown.values(), strict=True)]
    title = f"Predictions, lower to upper: {LEVEL:.0%}" if BOUNDS[0] in columns else "Predictions"
    Console().print(results_table(rows, title))
    count = max(map(len, columns.values()))
    if count > SHOWN:
        print(f"and {count - SHOWN} more")


def _columns(
    predictions: Predictions | Mixtures | LabelPredictions, names: Sequence[str]
) -> dict[str, Sequence[Any] | npt.NDArray[Any]]:
    """Return N values of each column of the table of predictions."""
    if isinstance(predictions, Predictions):
        scores = {n: predictions.uncertainty[n] for n in SCORES if n in predictions.uncertainty}
        return {
            "class": predictions.predicted_names,
            "probability": predictions.confidence,
            **scores,
        }
    whole, *_ = predictions.ranked_by
    total = predictions.uncertainty[whole]
    if isinstance(predictions, Mixtures):
        bounds = dict(zip(BOUNDS, predictions.interval, strict=True))
        return {"mean": predictions.mean, **bounds, "deviation": np.sqrt(total)}
    found = [", ".join(np.array(names)[present]) or "–" for present in predictions.predicted]
    return {"labels": found, whole: total}


USUAL_NAMES = ("images", "x_test")
"""Usual names of the array of images in a file."""

USUAL_LABELS = ("labels", "y_test")
"""Usual names of the array of the images' classes."""


def read_images(path: Path, array: str = "", *, unclear: str) -> npt.NDArray[Any]:
    """Return the images in a NumPy file.

    Args:
        array: The name of an archive's array; empty: one of the usual names, or the only array.
        unclear: What to do where it is not clear which array is meant, for the message.

    Raises:
        DataError: The file cannot be read, or it is not clear which array is meant.
        ConfigurationError: There is no array of that name.
    """
    with open_arrays(path) as held:
        found = held[ALONE if ALONE in held else _chosen(path, list(held), array, unclear)]
    if not found.ndim:
        raise DataError(f"{path} holds one number, and no images")
    return found


def read_pictures(path: Path, reading: Reading) -> tuple[tuple[str, ...], Images]:
    """Return the images in a folder, or in one file, (N, H, W, C), and their N paths from there.

    Args:
        path: A folder, in and below which all image files are taken but hidden ones; or an image
            file.

    Raises:
        DataError: There are none, or one cannot be read.
    """
    root = path.parent if path.is_file() else path
    inside = [path] if path.is_file() else sorted(path.rglob("*"))
    named = {each.relative_to(root): each for each in inside if each.is_file()}
    files = {
        str(name): each
        for name, each in named.items()
        if name.suffix.lower() in PICTURES and not any(p.startswith(".") for p in name.parts)
    }
    if not files:
        raise DataError(f"{path} has no image; their names end with {', '.join(PICTURES)}")
    return tuple(files), stacked(map(opened_picture, files.values()), len(files), reading)


def read_labels(path: Path, images: int, classes: int) -> npt.NDArray[np.int64]:
    """Return the (N,) classes of a NumPy archive's images, from 0.

    Raises:
        DataError: The file cannot be read, or has no such classes.
    """
    usual = " or ".join(USUAL_LABELS)
    with open_arrays(path) as held:
        found = [name for name in USUAL_LABELS if name in held]
        if not found:
            raise DataError(f"{path} has no array {usual}: the classes of its images are not known")
        labels = held[found[0]]
    if labels.dtype.kind not in "iu" or labels.size != images:
        raise DataError(
            f"{path}: {found[0]} has shape {labels.shape} and type {labels.dtype}; expected one "
            f"whole number for each of the {images} images"
        )
    # Before they are made int64, in which the greatest of uint64 are negative.
    if labels.min() < 0 or labels.max() >= classes:
        raise DataError(
            f"{path}: {found[0]} has classes from {labels.min()} to {labels.max()}; expected 0 to "
            f"{classes - 1}, the classes of the run"
        )
    return labels.reshape(-1).astype(np.int64)


def _chosen(path: Path, names: Sequence[str], wanted: str, unclear: str) -> str:
    if wanted:
        if wanted not in names:
            raise ConfigurationError(f"{path}: --array: {unknown_name('array', wanted, names)}")
        return wanted
    found = [name for name in USUAL_NAMES if name in names] or list(names)
    if len(found) == 1 or (found and found[0] in USUAL_NAMES):
        return found[0]
    held = ", ".join(names) or "nothing"
    raise DataError(f"{path} holds {held}; {unclear}")


def add_evaluate_to(evaluate: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl evaluate``."""
    evaluate.add_argument("folder", type=path_argument, metavar="RUN", help="the run's folder")
    evaluate.add_argument(
        "--data",
        required=True,
        metavar="DATASET",
        help="a data set as in the key dataset, such as npz:PATH: its test examples; of a folder "
        "or a table that the run was not made on, all that have no test part of their own",
    )
    evaluate.add_argument(
        "--data-dir", metavar="FOLDER", help="of named data sets' archives (default: the run's)"
    )
    evaluate.add_argument(
        "--foreign", default="", metavar="WORDS", help="foreign images, as in the key ood-dataset"
    )
    evaluate.add_argument(
        "--corruptions", default="none", metavar="WORDS", help="as in the key corruptions"
    )
    add_prediction_to(evaluate)
    evaluate.add_argument(
        "--output",
        type=path_argument,
        metavar="FILE",
        help="what gets all numbers, a new JSON file",
    )
    evaluate.set_defaults(run=evaluate_run)


@plain_warnings()
def evaluate_run(given: argparse.Namespace) -> None:
    """Evaluate a run, print the numbers, and write them if asked to."""
    if given.output:
        check_new(given.output)
    result = load(given.folder, given.posterior)
    found = result.evaluate(
        given.data,
        foreign=given.foreign,
        corruptions=given.corruptions,
        data_dir=given.data_dir,
        samples=given.samples,
    )
    to = console()
    print(f"{given.folder} on {found['examples']} examples of {given.data}{_shape(result)}")
    to.print(metrics_table(found["metrics"], found["samples"]))
    if found["foreign"]:
        to.print(results_table(_of_foreign(found["foreign"]), "Foreign images"))
    if found["corruptions"]:
        to.print(results_table(_of_corruptions(found["corruptions"]), "Corrupted images"))
    if given.output:
        write_output(given.output, json.dumps(found, indent=1).encode())


def _shape(result: Result) -> str:
    """Return the shape that images have been brought to, in words; nothing of a table."""
    if result.takes_rows:
        return ""
    return f", images brought to {' x '.join(map(str, result.image_shape))}"


def _of_foreign(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each source and uncertainty."""
    return [
        {"images": name, "near": source["near"], "uncertainty": by, **numbers}
        for name, source in found["sources"].items()
        for by, numbers in source["uncertainties"].items()
    ]


def _of_corruptions(found: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """Return a row for each corruption and strength."""
    return [
        {"corruption": name, "strength": strength, **dict(zip(by_metric, values, strict=True))}
        for name, by_metric in found.items()
        for strength, values in enumerate(zip(*by_metric.values(), strict=True))
    ]
