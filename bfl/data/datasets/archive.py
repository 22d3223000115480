"""NumPy archives: ``x_train``, ``y_train``, ``x_test``, ``y_test`` in one ``.npz`` file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.archives import ALONE, open_arrays
from bfl.data.datasets.base import Dataset, PathSource, dataset_sources
from bfl.data.datasets.columns import normalize
from bfl.data.datasets.labels import number_classes
from bfl.data.datasets.pictures import WHITE, as_pixels, channels_last
from bfl.data.datasets.reading import Reading
from bfl.errors import DataError

CALLED = {
    "train_images": "x_train",
    "train_labels": "y_train",
    "test_images": "x_test",
    "test_labels": "y_test",
}
"""Names of a data set's arrays in an archive."""

DARK = 16
"""Greatest pixel, of 255, of images that a person is told are dark."""


@dataset_sources.register("npz")
class Archive(PathSource):
    """A NumPy archive of your own: ``npz:PATH``, with x_train, y_train, x_test and y_test.

    Images are [N, H, W] or [N, H, W, C]: uint8, floats of 0..1, or any numbers within
    ``pixel-range``; all but uint8 are kept as floats. Labels are whole numbers from 0 or from 1,
    [N] or [N, 1], or strings. An array of strings ``class_names`` may name the classes; else there
    are as many as ``y_train`` says. Arrays NAME_train and NAME_test are columns for partitions,
    such as ``site``. A relative path is looked up in the current folder, then in ``data-dir``.
    """

    takes_pixel_range: ClassVar[bool] = True

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the archive."""
        path = self.find(location, data_dir)
        return read_archive(path, f"npz:{location}", pixel_range=reading.pixel_range)


def read_archive(
    path: Path, name: str, class_names: tuple[str, ...] = (), *, pixel_range: str = ""
) -> Dataset:
    """Return the data set in an archive.

    Args:
        class_names: The classes of a known data set; empty: what the archive says.

    Raises:
        DataError: The message names the file, the array and what is wrong.
    """
    with open_arrays(path) as archive:
        if ALONE in archive:
            raise DataError(f"{path}: not a NumPy archive (.npz): it is a single array")
        if missing := [array for array in CALLED.values() if array not in archive]:
            found = ", ".join(sorted(archive)) or "nothing"
            raise DataError(f"{path}: {', '.join(missing)} missing; the archive holds {found}")
        known = [*CALLED.values(), "class_names"]
        wanted = [a for a in archive if a in known or a.endswith(("_train", "_test"))]
        arrays = archive.checked(wanted)
    try:
        dataset = _dataset(path, name, arrays, class_names, pixel_range)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    replace(dataset, name=str(path)).check(CALLED)
    return dataset


def _dataset(
    path: Path,
    name: str,
    arrays: dict[str, npt.NDArray[Any]],
    class_names: tuple[str, ...],
    pixel_range: str,
) -> Dataset:
    names = arrays.get("class_names", np.array([], str))
    given = class_names or tuple(map(normalize, names.astype(str).ravel()))
    listed = names.ndim == 1 and names.dtype.kind == "U" and names.size
    if ("class_names" in arrays and not listed) or len(set(given)) < len(given):
        raise DataError(
            f"class_names has the type {names.dtype} and the shape {names.shape}; it is a list of "
            "strings, none of them twice"
        )
    images = {array: arrays[array] for array in ("x_train", "x_test")}
    for array, shape in ((array, values.shape) for array, values in images.items()):
        if len(shape) not in (3, 4):
            raise DataError(f"{array} has the shape {shape}; images are [N, H, W] or [N, H, W, C]")
        if 0 in shape:
            raise DataError(f"{array} is empty: its shape is {shape}")
        channels_last(array, shape)
    labels = {array: arrays[array] for array in ("y_train", "y_test")}
    classes = number_classes(labels, given, fixed=bool(class_names))
    pixels = as_pixels(images, pixel_range)
    train, test = (a[..., np.newaxis] if a.ndim == 3 else a for a in pixels.values())
    notes = [f"{path}: {note}" for note in classes.notes]
    greatest = max(float(train.max()), float(test.max()))
    if 0 < greatest <= DARK and not pixel_range:
        notes.append(
            f"{path}: its pixels are up to {greatest:g} of {WHITE}; if {greatest:g} is white, say "
            f'pixel-range="0:{greatest:g}"'
        )
    columns: dict[str, dict[str, npt.NDArray[Any]]] = {"train": {}, "test": {}}
    for array in arrays.keys() - {*CALLED.values(), "class_names"}:
        column, _, split = array.rpartition("_")
        values, rows = arrays[array], len(images[f"x_{split}"])
        if values.shape != (rows,):
            raise DataError(
                f"{array} has the shape {values.shape}; expected ({rows},), a value for each "
                "image, such as its site"
            )
        texts = values.dtype.kind == "U"
        columns[split][column] = np.array(list(map(normalize, values))) if texts else values
    return Dataset(
        name=name,
        train_images=train,
        train_labels=classes.labels[0],
        test_images=test,
        test_labels=classes.labels[1],
        class_names=classes.names,
        numbered_here=classes.here,
        said=tuple(notes),
        train_columns=columns["train"],
        test_columns=columns["test"],
    )
