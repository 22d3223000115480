"""The command ``bfl predict``: a run's posterior on images of your own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.api import Predictions, load
from bfl.api.predictions import save_arrays
from bfl.api.result import POSTERIORS, PREDICT
from bfl.commands.image_files import USUAL_NAMES, read_images, read_pictures
from bfl.commands.terminal import (
    check_new,
    check_suffix,
    path_argument,
    plain_warnings,
    write_output,
)
from bfl.data.datasets.pictures import SUFFIXES as PICTURES
from bfl.data.datasets.reading import PIXEL_RANGE, Reading
from bfl.data.datasets.table import SUFFIXES, read_table, table_as_written
from bfl.errors import DataError
from bfl.evaluation.regression import LEVEL, Mixtures
from bfl.experiments.results.table import print_rows
from bfl.files import near_path
from bfl.texts import counted

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = 10
"""Predictions that are printed, at most."""


SCORES = ("predictive-entropy", "epistemic", "feature-density")
"""Uncertainties that are printed; an archive has all."""


BOUNDS = ("lower", "upper")
"""Bounds of a number's interval."""


NPZ, CSV = ".npz", ".csv"


SPELT = ("folder", "table", "npz")
"""Words of the key ``dataset`` that may stand before a path."""


def add_to(predict: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl predict``."""
    predict.add_argument("folder", type=path_argument, metavar="FOLDER", help="the run's folder")
    predict.add_argument(
        "--data",
        type=_data,
        required=True,
        metavar="FILE",
        help="a NumPy archive (.npz) or array (.npy) of images (N, H, W, C): uint8, or "
        "floats of 0 to 1; a folder of image files, or one of them; or a table (.csv, .parquet) "
        "with the columns of the run's; also spelt as in the key dataset, folder:PATH",
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
        "the printed columns, each class's probability and a table's own columns (default: "
        "RUN-NAME-predictions.npz, here, written anew)",
    )
    add_prediction_to(predict)
    predict.set_defaults(run=predict_images)


def _data(given: str) -> Path:
    """Return the path of an argument that may be spelt as in the key ``dataset``."""
    kind, _, path = given.partition(":")
    return path_argument(path if path and kind in SPELT else given)


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
    if given.output:  # the default is this command's own file
        check_new(output)
    unclear = "say by --array which of them are the images"
    table = _is_table(given, result.takes_rows)
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
        if reading.pixel_range:
            raise DataError(
                f"{given.data} is of image files, and {given.folder} was made on measurements "
                f"({PIXEL_RANGE} {reading.pixel_range}); allowed: {NPZ} or .npy"
            )
        files, images = read_pictures(given.data, reading)
        if images.dtype.kind == "f":
            images = images / 255
    else:
        images = read_images(given.data, given.array, unclear=unclear)
    try:
        predict = getattr(result, PREDICT[result.task])
        predictions = predict(images, samples=given.samples)
    except DataError as error:
        raise DataError(f"{given.data}: {error}") from error
    # Rows count from 1, as where one is refused; images from 0, as in their array.
    count = len(images)
    first = {"row": range(1, count + 1)} if table else {"image": files or range(count)}
    columns = {**first, **_columns(predictions)}
    _show(columns)
    told = counted(count, "prediction"), counted(predictions.samples, "sample")
    print(f"{' of '.join(told)}: ", end="")
    if output.suffix.lower() == CSV:
        from pandas import DataFrame, concat

        whole = DataFrame({**columns, **_probabilities(predictions, result.class_names)})
        if table:
            whole = concat([_renamed(table_as_written(given.data), whole), whole], axis=1)
        text = whole.to_csv(index=False)
        write_output(output, text.encode("utf-8", "surrogateescape"))
        return
    named = {"files": np.array(files)} if files else {}
    bounds = {name: np.asarray(columns[name]) for name in BOUNDS if name in columns}
    print(save_arrays({**predictions.arrays(), **bounds, **named}, output))


def _is_table(given: argparse.Namespace, takes_rows: bool) -> bool:
    """Return whether the data are a table, once they are there and what the run takes.

    Raises:
        DataError: They are not.
    """
    if not given.data.exists():
        raise DataError(f"--data: there is no file or folder {given.data}{near_path(given.data)}")
    table = given.data.suffix.lower() in SUFFIXES
    if takes_rows and not table:
        raise DataError(
            f"{given.data} is no table, and {given.folder} was made on one; allowed: "
            f"{' or '.join(SUFFIXES)}"
        )
    if table and not takes_rows:
        raise DataError(f"{given.data} is a table, and {given.folder} was made on images")
    return table


def _show(columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> None:
    """Print the first rows of the table of predictions, and how many more there are."""
    shown = {name: values[:SHOWN] for name, values in columns.items()}
    rows = [dict(zip(shown, row, strict=True)) for row in zip(*shown.values(), strict=True)]
    title = f"Predictions, lower to upper: {LEVEL:.0%}" if BOUNDS[0] in columns else "Predictions"
    print_rows(rows, title)
    count = max(map(len, columns.values()))
    if count > SHOWN:
        print(f"and {count - SHOWN} more")


def _columns(predictions: Predictions | Mixtures) -> dict[str, Sequence[Any] | npt.NDArray[Any]]:
    """Return N values of each column of the table of predictions."""
    if isinstance(predictions, Predictions):
        scores = {n: predictions.uncertainty[n] for n in SCORES if n in predictions.uncertainty}
        return {
            "class": predictions.predicted_names,
            "probability": predictions.confidence,
            **scores,
        }
    bounds = dict(zip(BOUNDS, predictions.interval, strict=True))
    total = predictions.uncertainty[predictions.ranked_by[0]]
    return {"mean": predictions.mean, **bounds, "deviation": np.sqrt(total)}


def _probabilities(
    predictions: Predictions | Mixtures, names: Sequence[str]
) -> dict[str, npt.NDArray[Any]]:
    """Return the probability of each class, (N,) by a column's name; of numbers none."""
    if isinstance(predictions, Mixtures):
        return {}
    found = predictions.mean_probability
    return {f"probability of {name}": found[:, c] for c, name in enumerate(names)}


def _renamed(own: DataFrame, beside: DataFrame) -> DataFrame:
    """Return a table with " (given)" behind its names that a table beside it has as well."""
    taken = {*own.columns, *beside.columns}

    def free(name: str) -> str:
        while name in taken:
            name += " (given)"
        taken.add(name)
        return name

    return own.rename(columns={name: free(name) for name in own if name in beside})
