"""The commands ``bfl predict`` and ``bfl evaluate``: a run's posterior on data of your own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from bfl.api import Predictions, Result, load
from bfl.api.result import POSTERIORS, PREDICT
from bfl.archives import ALONE, open_arrays
from bfl.closing import closed
from bfl.commands import terminal
from bfl.data.datasets import folder as pictures
from bfl.data.datasets import table as tables
from bfl.data.datasets.encoding import count_missing_cells
from bfl.data.datasets.reading import PIXEL_RANGE, Reading
from bfl.errors import DataError
from bfl.evaluation.regression import LEVEL, Mixtures
from bfl.experiments.results.summary import OF_FOREIGN
from bfl.experiments.results.table import metrics_table, print_rows
from bfl.files import near_path
from bfl.printing import doing
from bfl.texts import counted, few

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = 10
"""The most predictions that are printed, those with warnings first."""

PRINTED = (
    *("row", "image", "class", "probability", "predictive-entropy", "epistemic"),
    *("mean", "lower", "upper", "deviation", "familiarity", "warnings"),
)
"""Columns that are printed; the file has all."""

USUAL_NAMES = ("images", "x_test")
"""Usual names of the array of images in a file."""

CSV = ".csv"

TRY = "bfl evaluate RUN --data DATASET --foreign folder:PATH tells"


def add_to(predict: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl predict``."""
    text = "the run's folder"
    predict.add_argument("folder", type=terminal.path_argument, metavar="FOLDER", help=text)
    text = "a folder of image files, or one of them; a table (.csv, .parquet) with the columns of "
    text += "the run's; a NumPy archive (.npz) or array (.npy) of images (N, H, W, C): uint8, or "
    text += "floats of 0 to 1; also spelt as in the key dataset, folder:PATH"
    predict.add_argument("--data", type=_data, required=True, metavar="FILE", help=text)
    text = "what gets the predictions, a new .csv file with a line for each image or row (default: "
    text += "RUN-NAME-predictions.csv, here, or with a number where there is such a file)"
    predict.add_argument("--output", type=terminal.path_argument, metavar="FILE", help=text)
    add_prediction_to(predict)
    predict.set_defaults(run=predict_images)


def _data(given: str) -> Path:
    kind, _, path = given.partition(":")
    return terminal.path_argument(path if path and kind in ("folder", "table", "npz") else given)


def add_prediction_to(command: argparse.ArgumentParser) -> None:
    """Add the options that say which posterior predicts, and by how many samples."""
    text = "Monte Carlo samples (default: the run's mc-samples, or 1 at the posterior's mean); a "
    text += "Bayesian head of the closing always draws its own"
    command.add_argument("--samples", type=int, metavar="M", help=text)
    text = "that of the last round, or of the last so far of a run that was interrupted"
    command.add_argument("--posterior", choices=POSTERIORS, default="last", help=text)


@terminal.plain_warnings()
def predict_images(given: argparse.Namespace) -> None:
    """Predict images or rows, write all, and print some, those with warnings first."""
    doing("the run and the data are read")
    result = load(given.folder, given.posterior)
    table = _is_table(given, result.encoding is not None)
    name = f"{given.folder.resolve().name}-{given.data.resolve().stem}-predictions"
    output, number = given.output or Path(f"{name}{CSV}"), 1
    while not given.output and output.exists():
        number += 1
        output = Path(f"{name}-{number}{CSV}")
    terminal.check_suffix("--output", output, CSV)
    terminal.check_new(output)
    _ = result.posterior  # what is wrong with the run's folder is not said of the images
    files: Sequence[Any]
    if table:
        inputs: Any = tables.read_table(given.data, result.encoding)
        files = range(1, len(inputs) + 1)  # as where a row is refused
    else:
        files, inputs = _read_images(given, result)
    doing("the network predicts")
    try:
        predictions = getattr(result, PREDICT[result.task])(inputs, samples=given.samples)
    except DataError as error:
        raise DataError(f"{given.data}: {error}") from error
    unit = "row" if table else "image"
    columns = _columns(predictions, {unit: files})
    _print(columns, predictions, unit)
    taken = [column.name for column in result.encoding.columns] if result.encoding else []
    if table and (missing := count_missing_cells(inputs, taken)):
        each = ", ".join(f"{name} {cells}" for name, cells in missing.items())
        print(
            f"rows of {len(inputs)} without a value, filled as the run's missing="
            f'"{result.configuration["missing"]}" says: {each}'
        )
        if empty := [name for name, cells in missing.items() if cells > 0.9 * len(inputs)]:
            print(f"hardly a row has a value of {few(empty)}, which the run has learnt from")
    if predictions.familiarity is not None:
        print(result.explain_unlike(predictions.familiarity, unit))
        if not table:
            print(
                _passes(result.metrics) or f"how many foreign images would pass is not known: {TRY}"
            )
    samples = counted(predictions.samples, "sample")
    print(f"{counted(len(columns), 'prediction')} of {samples}: ", end="")
    text = columns.to_csv(index=False).encode("utf-8", "surrogateescape")
    written = tables.write_beside(given.data, columns) if table else text
    terminal.write_output(output, written)


def _is_table(given: argparse.Namespace, takes_rows: bool) -> bool:
    if not given.data.exists():
        raise DataError(f"--data: there is no file or folder {given.data}{near_path(given.data)}")
    table = given.data.suffix.lower() in tables.SUFFIXES
    if takes_rows and not table:
        raise DataError(
            f"{given.data} is no table, and {given.folder} was made on one; allowed: "
            f"{' or '.join(tables.SUFFIXES)}"
        )
    if table and not takes_rows:
        raise DataError(f"{given.data} is a table, and {given.folder} was made on images")
    return table


def _columns(predictions: Predictions | Mixtures, columns: dict[str, Any]) -> DataFrame:
    """Return columns with those of the predictions behind them."""
    from pandas import DataFrame

    if isinstance(predictions, Predictions):
        columns |= {"class": predictions.predicted_names, "probability": predictions.confidence}
        for number, name in enumerate(predictions.class_names):
            columns[f"probability of {name}"] = predictions.mean_probability[:, number]
        columns |= predictions.uncertainty
    else:
        lower, upper = predictions.interval
        columns |= {"mean": predictions.mean, "lower": lower, "upper": upper}
        columns["deviation"] = predictions.deviation
    if predictions.familiarity is not None:
        columns["familiarity"] = predictions.familiarity
    if any(predictions.warnings):
        columns["warnings"] = ["; ".join(each) for each in predictions.warnings]
    return DataFrame(columns)


def _print(columns: DataFrame, predictions: Predictions | Mixtures, unit: str) -> None:
    rows, unusual = len(columns), sum(map(bool, predictions.warnings))
    title = f"Predictions, lower to upper: {LEVEL:.0%}" if "lower" in columns else "Predictions"
    shown = columns[[name for name in PRINTED if name in columns]]
    if unusual:  # the file has all warnings, and the order of the data
        title = f"{title}; {unusual} of {counted(rows, unit)} with warnings, which stand first"
        sorted_warnings = [sorted(each, key=closed.UNLIKE.__ne__) for each in predictions.warnings]
        shown = shown.assign(warnings=[few(each, 3) for each in sorted_warnings])
        ranks = [2 * (not each) - (closed.UNLIKE in each) for each in predictions.warnings]
        shown = shown.iloc[sorted(range(rows), key=ranks.__getitem__)]
    print_rows(shown.head(SHOWN).to_dict("records"), title)
    if rows > SHOWN:
        print(f"and {rows - SHOWN} more")


def _passes(metrics: Mapping[str, float]) -> str:
    """Return how much of the foreign data of the run's end is taken for known, in words."""
    begin, end = OF_FOREIGN, f"-{closed.UNFAMILIAR_SHARE}"
    shares = [
        f"{1.0 - share:.0%} of {name.removeprefix(begin).removesuffix(end)}"
        for name, share in metrics.items()
        if name.startswith(begin) and name.endswith(end)
    ]
    return f"of the run's foreign images these passed as known: {', '.join(shares)}" * bool(shares)


def _read_images(given: argparse.Namespace, result: Result) -> tuple[Sequence[Any], Any]:
    """Return what names images, their files or their positions in an array, and the images."""
    if not given.data.is_dir() and given.data.suffix.lower() not in pictures.SUFFIXES:
        images = read_images(given.data)
        return range(len(images)), images
    height, width, channels = result.image_shape
    size = height if height == width else 0
    reading = replace(Reading.of(result.configuration), image_size=size, image_channels=channels)
    if reading.pixel_range:
        raise DataError(
            f"{given.data} is of image files, and {given.folder} was made on measurements "
            f"({PIXEL_RANGE} {reading.pixel_range}); allowed: .npz or .npy"
        )
    files, images = pictures.read_unlabelled(given.data, reading)
    return files, images / 255 if images.dtype.kind == "f" else images


def read_images(path: Path) -> npt.NDArray[Any]:
    """Return the images in a NumPy file: its array of a usual name, or its only one."""
    with open_arrays(path) as held:
        names = list(held)
        usual = [name for name in (ALONE, *USUAL_NAMES) if name in held]
        if not usual and len(names) != 1:
            raise DataError(
                f"{path} holds {', '.join(names) or 'nothing'}; allowed: the images as "
                f"{' or '.join(USUAL_NAMES)}, or one array alone"
            )
        found = held[(usual or names)[0]]
    if not found.ndim:
        raise DataError(f"{path} holds one number, and no images")
    return found


def add_evaluate_to(evaluate: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl evaluate``."""
    text = "the run's folder"
    evaluate.add_argument("folder", type=terminal.path_argument, metavar="RUN", help=text)
    text = "a data set as in the key dataset, such as npz:PATH: its test examples; of a folder or "
    text += "a table that the run was not made on, all that have no test part of their own"
    evaluate.add_argument("--data", required=True, metavar="DATASET", help=text)
    text = "foreign images, as in the key ood-dataset: folder:PATH takes all in and below it"
    evaluate.add_argument("--foreign", default="", metavar="WORDS", help=text)
    text = "as in the key corruptions"
    evaluate.add_argument("--corruptions", default="none", metavar="WORDS", help=text)
    add_prediction_to(evaluate)
    text = "what gets all numbers, a new JSON file"
    evaluate.add_argument("--output", type=terminal.path_argument, metavar="FILE", help=text)
    evaluate.set_defaults(run=evaluate_run)


@terminal.plain_warnings()
def evaluate_run(given: argparse.Namespace) -> None:
    """Evaluate a run, print the numbers, and write them if asked to."""
    if given.output:
        terminal.check_new(given.output)
    doing("the network predicts")
    result = load(given.folder, given.posterior)
    found = result.evaluate(
        given.data, foreign=given.foreign, corruptions=given.corruptions, samples=given.samples
    )
    print(f"{given.folder} on {found['examples']} examples of {given.data}")
    terminal.console().print(metrics_table(found["metrics"], found["samples"]))
    if found["foreign"]:
        rows = [
            {"images": name, "n": each["examples"], "near": each["near"], "score": by, **by_it}
            for name, each in found["foreign"]["sources"].items()
            for by, by_it in each["uncertainties"].items()
        ]
        print_rows(rows, "Foreign images")
    if found["corruptions"]:
        rows = [
            {"corruption": name, "strength": strength, **dict(zip(by_metric, values, strict=True))}
            for name, by_metric in found["corruptions"].items()
            for strength, values in enumerate(zip(*by_metric.values(), strict=True))
        ]
        print_rows(rows, "Corrupted images")
    if given.output:
        terminal.write_output(given.output, json.dumps(found, indent=1).encode())
    else:
        print("nothing is written without --output")
