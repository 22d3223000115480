"""The command ``bfl evaluate``: a finished run on any labelled data set."""

from __future__ import annotations

import argparse
import json
from typing import Any

from bfl.api import Result, load
from bfl.commands.predict import add_prediction_to
from bfl.commands.terminal import (
    check_new,
    console,
    path_argument,
    plain_warnings,
    write_output,
)
from bfl.experiments.results.table import metrics_table, print_rows


def add_to(evaluate: argparse.ArgumentParser) -> None:
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
    print(f"{given.folder} on {found['examples']} examples of {given.data}{_shape(result)}")
    console().print(metrics_table(found["metrics"], found["samples"]))
    if found["foreign"]:
        print_rows(_of_foreign(found["foreign"]), "Foreign images")
    if found["corruptions"]:
        print_rows(_of_corruptions(found["corruptions"]), "Corrupted images")
    if given.output:
        write_output(given.output, json.dumps(found, indent=1).encode())
    else:
        print("nothing is written without --output")


def _shape(result: Result) -> str:
    """Return the shape of the images that the network takes, in words; nothing of a table."""
    if result.takes_rows:
        return ""
    return f", as images of {' x '.join(map(str, result.image_shape))}"


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
