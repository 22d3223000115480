"""A run's network evaluated on a labelled data set, on foreign images and on corrupted ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.datasets import Dataset, Reading, cached_dataset, dataset_files
from bfl.data.datasets.foreign import absolute_foreign, corruption_names, foreign_images
from bfl.data.datasets.table import answers_of, target_column
from bfl.data.images import Images
from bfl.errors import BflError, DataError, nearest
from bfl.evaluation.prediction.predictions import Predictions
from bfl.experiments.results.summary import (
    by_strength,
    evaluated_foreign,
    predicted_by_strength,
    summarize,
)
from bfl.experiments.run.network import NetworkDescription
from bfl.texts import few


def evaluate_data(
    network: NetworkDescription,
    predict: Callable[[Images], Predictions],
    settings: Mapping[str, Any],
    dataset: Dataset,
    *,
    foreign: str,
    corruptions: str,
    data_dir: str,
) -> dict[str, Any]:
    """Return what ``Result.evaluate`` does: how good predictions are for test examples."""
    names, sources = corruption_names(corruptions), absolute_foreign(foreign, data_dir)
    if network.encoding and (names or sources):
        key, value = ("corruptions", corruptions) if names else ("foreign", foreign)
        raise DataError(f"{key} is '{value}', and the run is of a table, not images; allowed: none")
    reading = Reading.of(settings)
    others = list(foreign_images(sources, data_dir, dataset, reading))
    predictions = predict(dataset.test_images)
    shown = [(each.name, each.near, {"": predict(each.images)}) for each in others]
    images, labels = dataset.test_images, dataset.tested_on
    return {
        "data": dataset.name,
        "examples": predictions.examples,
        "samples": predictions.samples,
        "metrics": summarize(predictions, labels, settings),
        "foreign": evaluated_foreign({"": predictions}, shown, settings),
        "corruptions": by_strength(
            predicted_by_strength(names, images, predictions, predict), labels, settings
        ),
    }


def named_data(
    network: NetworkDescription,
    settings: Mapping[str, Any],
    data: str,
    data_dir: str,
    digests: Mapping[str, str],
) -> Dataset:
    """Return a data set as in the key ``dataset``, its examples as the network takes them."""
    height, width, channels = network.image_shape
    size = height if height == width else 0
    reading = replace(Reading.of(settings), image_size=size, image_channels=channels)
    if network.encoding:
        reading = replace(reading, image_size=0, image_channels=0, encoding=network.encoding)
    dataset = cached_dataset(data, data_dir, reading)
    for line in dataset.said:
        warnings.warn(line, stacklevel=3)
    _check_goes_with(network, dataset, data)
    # A copy of the run's data is no other data: some of it was for training.
    copied = digests.get("test") == dataset.test_digest
    if dataset.split_here and not copied:
        whole = dataset.all_for_testing()
        # A server whose clients have data of their own tests on all of its.
        tested = digests.get("test") == whole.test_digest
        if tested or not _is_the_runs(data, data_dir, settings):
            dataset = whole
    return replace(dataset, name=data)


def data_in_memory(
    network: NetworkDescription,
    settings: Mapping[str, Any],
    inputs: Images,
    rows: Any,
    answers: npt.ArrayLike | None,
) -> Dataset:
    """Return a data set all of whose examples are for testing.

    Args:
        rows: The examples as they were given, and not as the network takes them.
        answers: Classes (N,), by name or by number; or numbers (N,). By default they are a column
            of ``rows``, a data frame.
    """
    from pandas import DataFrame

    where, names = "the data", network.class_names
    if answers is None:
        if not isinstance(rows, DataFrame):
            raise DataError("labels are missing; allowed: evaluate(x, y), or a data frame of both")
        column = rows[target_column(where, rows, Reading.of(settings))].reset_index(drop=True)
    else:
        frame = DataFrame(_by_name(np.asarray(answers), names))
        if frame.shape != (len(inputs), 1):
            raise DataError(
                f"labels have the shape {np.shape(answers)}; expected {len(inputs)} of them"
            )
        column = frame.iloc[:, 0].rename("labels")
    found = answers_of(where, column, network.task, names)
    return Dataset(
        name=where,
        train_images=inputs[:0],
        train_labels=found.labels[:0],
        test_images=inputs,
        test_labels=found.labels,
        class_names=names,
        encoding=network.encoding,
        target=network.target,
        test_targets=found.true,
    )


def _by_name(answers: npt.NDArray[Any], names: tuple[str, ...]) -> npt.NDArray[Any]:
    """Return classes by name where they are numbers from 0 and no names; all else as it is."""
    if answers.ndim != 1 or answers.dtype.kind not in "iu" or not answers.size:
        return answers
    own = {*map(str, np.unique(answers))} <= {*names}
    numbered = answers.min() >= 0 and answers.max() < len(names)
    return np.array(names)[answers] if numbered and not own else answers


def _is_the_runs(data: str, data_dir: str, settings: Mapping[str, Any]) -> bool:
    """Return whether these are the run's files; these are others where those are gone."""
    own = str(settings.get("dataset", ""))
    try:
        there = dataset_files(own, str(settings.get("data-dir", "")))
    except BflError:
        return data == own
    return [p.resolve() for p in there] == [p.resolve() for p in dataset_files(data, data_dir)]


def _check_goes_with(network: NetworkDescription, dataset: Dataset, word: str) -> None:
    if dataset.image_shape != network.image_shape:
        given, taken = (
            "x".join(map(str, shape)) for shape in (dataset.image_shape, network.image_shape)
        )
        raise DataError(
            f"data set '{word}' has images of {given}, and the run's network takes {taken} (height "
            "x width x channels); allowed: such images, or square ones for a network of square ones"
        )
    own, names = network.class_names, dataset.class_names
    # Archives without names have classes by number, of which the last may have no example.
    numbers = tuple(map(str, range(len(own))))
    unnamed = own == numbers and len(names) == len(own)
    if names in (own, numbers[: len(names)]) or unnamed:
        return
    hints = [
        f"; '{name}' is none of them" + (f" (did you mean '{near}'?)" if near else "")
        for name in sorted({*names} - {*own})[:3]
        for near in [nearest(name, own)]
    ]
    if word.startswith("folder:"):
        hints.append(f"; {word.removeprefix('folder:')}/classes.txt names the run's, one a line")
    raise DataError(
        f"data set '{word}' has {len(names)} classes, {few(names)}, and the run {len(own)}, "
        f"{few(own)}; allowed: those of the run, by name or by number from 0{''.join(hints)}"
    )
