"""NumPy archives: ``x_train``, ``y_train``, ``x_test``, ``y_test`` in one ``.npz`` file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from bfl.archives import open_arrays
from bfl.data.datasets.base import Dataset, Labels, PathSource, dataset_sources
from bfl.data.datasets.encoding import normalize
from bfl.data.datasets.reading import Reading
from bfl.data.images import Array, as_pixels
from bfl.errors import DataError

CALLED = {
    "train_images": "x_train",
    "train_labels": "y_train",
    "test_images": "x_test",
    "test_labels": "y_test",
}
"""Names of a data set's arrays in an archive."""

NAMES = "class_names"


@dataset_sources.register("npz")
class Archive(PathSource):
    """A NumPy archive of your own: ``npz:PATH``, with x_train, y_train, x_test and y_test.

    Images are [N, H, W] or [N, H, W, C]: uint8, floats of 0..1, or any numbers within
    ``pixel-range``; all but uint8 are kept as floats. Labels are whole numbers from 0, [N] or
    [N, 1]. An array of strings ``class_names`` may name the classes; else there are as many as
    ``y_train`` says. A relative path is looked up in the current folder, then in ``data-dir``.
    """

    takes_pixel_range: ClassVar[bool] = True

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the archive."""
        path = self.find(location, data_dir)
        return read_archive(path, f"npz:{location}", pixel_range=reading.pixel_range)


def read_archive(
    path: Path, name: str, class_names: tuple[str, ...] = (), *, pixel_range: str = ""
) -> Dataset:
    """Return the data set in an archive; ``class_names`` are those of a known one."""
    with open_arrays(path) as archive:
        if missing := [array for array in CALLED.values() if array not in archive]:
            found = ", ".join(sorted(archive)) or "nothing"
            raise DataError(f"{path}: {', '.join(missing)} missing; the archive holds {found}")
        arrays = archive.checked(a for a in (*CALLED.values(), NAMES) if a in archive)
    try:
        names = class_names or _names(arrays)
        for array in ("x_train", "x_test"):
            _check_images(array, arrays[array].shape)
        pixels = as_pixels({a: arrays[a] for a in ("x_train", "x_test")}, pixel_range)
        images = [a[..., np.newaxis] if a.ndim == 3 else a for a in pixels.values()]
        labels = [whole_labels(array, arrays[array]) for array in ("y_train", "y_test")]
        names = names or number_classes("y_train", labels[0])
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    dataset = Dataset(name, images[0], labels[0], images[1], labels[1], names)
    replace(dataset, name=str(path)).check(CALLED)
    return dataset


def _names(arrays: dict[str, Array]) -> tuple[str, ...]:
    given = arrays.get(NAMES, np.zeros(0, str))
    names = tuple(map(normalize, given.ravel().astype(str)))
    if (NAMES in arrays and (given.dtype.kind != "U" or not names)) or len({*names}) < len(names):
        raise DataError(f"{NAMES} is {given.dtype} {given.shape}; allowed: different texts")
    return names


def _check_images(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) not in (3, 4) or 0 in shape:
        raise DataError(f"{name} has the shape {shape}; images are [N, H, W] or [N, H, W, C]")
    if len(shape) == 4 and shape[1] <= 4 < min(shape[2:]):
        raise DataError(
            f"{name} has the shape {shape}, which looks like [N, C, H, W]; channels come last: "
            f"{name} = {name}.transpose(0, 2, 3, 1)"
        )


def whole_labels(name: str, labels: Array) -> Labels:
    """Return labels [N] or [N, 1] of any type of integers as int64 [N]."""
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.dtype.kind not in "biu" or flat.ndim != 1 or not flat.size:
        raise DataError(
            f"{name} has the type {labels.dtype} and the shape {labels.shape}; allowed: integers "
            "from 0, [N] or [N, 1] (numpy.unique with return_inverse makes such)"
        )
    return flat.astype(np.int64)


def number_classes(name: str, labels: Labels) -> tuple[str, ...]:
    """Return names of classes that have numbers alone, by training labels; most have examples."""
    highest, present = int(labels.max()), np.unique(labels).size
    if (lowest := int(labels.min())) > 0:
        raise DataError(
            f"{name} begins at the label {lowest}; labels count from 0 (numpy.unique with "
            f"return_inverse makes such), or an array {NAMES} names all classes"
        )
    if highest + 1 > 2 * present:
        raise DataError(
            f"{name}[{labels.argmax()}] is the label {highest}, which makes {highest + 1} classes, "
            f"and only {present} have an example; allowed: classes numbered from 0, or an array "
            f"{NAMES} that names all of them"
        )
    return tuple(map(str, range(highest + 1)))
