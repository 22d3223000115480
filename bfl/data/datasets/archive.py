"""NumPy archives: ``x_train``, ``y_train``, ``x_test``, ``y_test`` in one ``.npz`` file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.archives import ALONE, open_arrays
from bfl.data.datasets.base import Dataset, PathSource, dataset_sources
from bfl.data.datasets.labels import numbered_classes
from bfl.data.datasets.pixels import WHITE, as_pixels, channels_last
from bfl.data.datasets.reading import Reading
from bfl.data.images import Images
from bfl.data.partitions.base import Columns
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

    def load_in(self, reading: Reading, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the archive."""
        path = self.find(location, data_dir)
        dataset = read_archive(path, f"npz:{location}", pixel_range=reading.pixel_range)
        return reading.applied(dataset)


def read_archive(
    path: Path,
    name: str,
    class_names: tuple[str, ...] = (),
    *,
    pixel_range: str = "",
) -> Dataset:
    """Return the data set in an archive.

    Args:
        name: Its word.
        class_names: The classes of a known data set; empty: what the archive says.
        pixel_range: The scale of its images, as for ``as_pixels``.

    Raises:
        DataError: The message names the file, the array and what is wrong.
    """
    arrays = _read(path)
    given = class_names or _names(path, arrays.get("class_names"))
    train, test = arrays["x_train"], arrays["x_test"]
    try:
        for array in ("x_train", "x_test"):
            _check_images(array, arrays[array].shape)
        labels = {array: arrays[array] for array in ("y_train", "y_test")}
        classes = numbered_classes(labels, given, fixed=bool(class_names))
        pixels = as_pixels({"x_train": train, "x_test": test}, pixel_range)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    train_labels, test_labels = classes.labels
    notes = list(classes.notes)
    greatest = max(float(array.max()) for array in pixels.values())
    if 0 < greatest <= DARK and not pixel_range:
        notes.append(
            f"{path}: its pixels are up to {greatest:g} of {WHITE}; if {greatest:g} is white, say "
            f'pixel-range="0:{greatest:g}"'
        )
    dataset = Dataset(
        name=str(path),  # what the messages of the check name
        train_images=_with_channels(pixels["x_train"]),
        train_labels=train_labels,
        test_images=_with_channels(pixels["x_test"]),
        test_labels=test_labels,
        class_names=classes.names,
        numbered_here=classes.here,
        said=tuple(notes),
        train_columns=_columns(path, arrays, "_train", len(train)),
        test_columns=_columns(path, arrays, "_test", len(test)),
    )
    dataset.check(CALLED)
    return Dataset(**{**vars(dataset), "name": name})


def _read(path: Path) -> dict[str, npt.NDArray[Any]]:
    with open_arrays(path) as archive:
        if ALONE in archive:
            raise DataError(f"{path}: not a NumPy archive (.npz): it is a single array")
        missing = [array for array in CALLED.values() if array not in archive]
        if missing:
            found = ", ".join(sorted(archive)) or "nothing"
            raise DataError(f"{path}: {', '.join(missing)} missing; the archive holds {found}")
        known = [array for array in (*CALLED.values(), "class_names") if array in archive]
        others = [a for a in archive if a.endswith(("_train", "_test")) and a not in known]
        return archive.checked([*known, *others])


def _check_images(array: str, shape: tuple[int, ...]) -> None:
    if len(shape) not in (3, 4):
        raise DataError(f"{array} has the shape {shape}; images are [N, H, W] or [N, H, W, C]")
    if 0 in shape:
        raise DataError(f"{array} is empty: its shape is {shape}")
    channels_last(array, shape)


def _with_channels(images: Images) -> Images:
    return images[..., np.newaxis] if images.ndim == 3 else images


def _columns(path: Path, arrays: Mapping[str, npt.NDArray[Any]], end: str, rows: int) -> Columns:
    """Return the arrays NAME_train or NAME_test, by NAME: what partitions may go by."""
    others = [name for name in arrays if name.endswith(end) and name not in CALLED.values()]
    for name in others:
        if arrays[name].shape != (rows,):
            raise DataError(
                f"{path}: {name} has the shape {arrays[name].shape}; expected ({rows},), a value "
                "for each image, such as its site"
            )
    return {name.removesuffix(end): arrays[name] for name in others}


def _names(path: Path, names: npt.NDArray[Any] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    if names.ndim != 1 or names.dtype.kind != "U" or not names.size:
        raise DataError(
            f"{path}: class_names has the type {names.dtype} and the shape {names.shape}; it is a "
            "list of strings"
        )
    if np.unique(names).size < names.size:
        raise DataError(f"{path}: class_names has a name twice")
    return tuple(str(name) for name in names)
