"""NumPy archives: ``x_train``, ``y_train``, ``x_test``, ``y_test`` in one ``.npz`` file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path, PurePath
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.base import Dataset, DatasetSource, Images, Labels, dataset_sources
from bfl.errors import ConfigurationError, DataError

CALLED = {
    "train_images": "x_train",
    "train_labels": "y_train",
    "test_images": "x_test",
    "test_labels": "y_test",
}
"""What an archive calls the arrays of a data set."""


@dataset_sources.register("npz")
class Archive(DatasetSource):
    """A NumPy archive of your own: ``npz:PATH``, with x_train, y_train, x_test and y_test.

    Images are [N, H, W] or [N, H, W, C]: integers 0..255, or floats that are scaled by 255 when
    no value of the archive is above 1, and rounded to integers 0..255 otherwise. Labels are
    integers from 0, [N] or [N, 1]. An array of strings ``class_names`` may name the classes; else
    there are as many as the highest label of ``y_train`` says. A relative path is looked up in the
    current folder, then in ``data-dir``.
    """

    location_form: ClassVar[str] = "PATH"

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check that the file is there."""
        super().check_location(location, data_dir)
        find_archive(location, data_dir)

    def absolute(self, location: str, data_dir: Path | None) -> str:
        """Return the absolute path."""
        return str(find_archive(location, data_dir).resolve())

    def portable(self, location: str) -> str:
        """Return the file's name."""
        return PurePath(location).name

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the archive's path."""
        return (find_archive(location, data_dir),)

    def reads_path(self, location: str) -> bool:
        """Return True: a path is all that it takes."""
        return True

    def load(self, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the archive."""
        super().check_location(location, data_dir)
        return read_archive(find_archive(location, data_dir), f"npz:{location}")


def find_archive(location: str, data_dir: Path | None) -> Path:
    """Return the path of an archive.

    Raises:
        ConfigurationError: There is no such file; the message names the paths that were tried.
    """
    path = Path(location).expanduser()
    # Joining an absolute path to a folder gives the absolute path again.
    tried = list(dict.fromkeys([path] if data_dir is None else [path, data_dir / path]))
    for candidate in tried:
        if candidate.is_file():
            return candidate
    raise ConfigurationError(
        f"dataset 'npz:{location}': there is no file {' nor '.join(map(str, tried))}; give the "
        "archive's path in the key 'dataset' (npz:PATH), relative to the current folder or to the "
        "folder of the key 'data-dir'"
    )


def read_archive(path: Path, name: str, class_names: tuple[str, ...] = ()) -> Dataset:
    """Return the data set in an archive.

    Args:
        path: The file.
        name: The data set's name.
        class_names: The classes, when they are known beforehand.

    Raises:
        DataError: The message names the file, the array and what is wrong.
    """
    arrays = _read(path)
    train_labels = _labels(path, "y_train", arrays["y_train"])
    test_labels = _labels(path, "y_test", arrays["y_test"])
    train_images, test_images = _images(path, arrays["x_train"], arrays["x_test"])
    dataset = Dataset(
        name=str(path),  # what the messages of the check name
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        class_names=class_names or _class_names(path, arrays.get("class_names"), train_labels),
    )
    dataset.check(CALLED)
    return Dataset(**{**vars(dataset), "name": name})


def _read(path: Path) -> dict[str, npt.NDArray[Any]]:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not a NumPy archive (.npz): the file is not a zip file")
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a NumPy archive (.npz): {error}") from error
    with archive:
        missing = [array for array in CALLED.values() if array not in archive]
        if missing:
            found = ", ".join(sorted(archive.files)) or "nothing"
            raise DataError(f"{path}: {', '.join(missing)} missing; the archive holds {found}")
        wanted = [array for array in (*CALLED.values(), "class_names") if array in archive]
        return {array: _member(path, array, archive) for array in wanted}


def _member(path: Path, array: str, archive: Any) -> npt.NDArray[Any]:
    try:
        member = archive[array]
    # NumPy refuses Python objects with a ValueError; the others come from damaged files.
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: {array} cannot be read: {error}") from error
    if not isinstance(member, np.ndarray):
        raise DataError(f"{path}: {array} is not an array")
    return member


def _labels(path: Path, array: str, labels: npt.NDArray[Any]) -> Labels:
    if labels.dtype.kind not in "iu":
        raise DataError(
            f"{path}: {array} has the type {labels.dtype}; labels are integers counted from 0"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(f"{path}: {array} has the shape {labels.shape}; labels are [N] or [N, 1]")
    if labels.size == 0:
        raise DataError(f"{path}: {array} is empty")
    if labels.max() > np.iinfo(np.int64).max:
        raise DataError(f"{path}: {array} holds the label {labels.max()}")
    if array == "y_train" and labels.min() > 0:
        raise DataError(f"{path}: {array} begins at the label {labels.min()}; labels count from 0")
    return labels.astype(np.int64)


def _images(path: Path, train: npt.NDArray[Any], test: npt.NDArray[Any]) -> tuple[Images, Images]:
    ranges = []
    for array, images in {"x_train": train, "x_test": test}.items():
        if images.ndim not in (3, 4):
            raise DataError(
                f"{path}: {array} has the shape {images.shape}; images are [N, H, W] or "
                "[N, H, W, C]"
            )
        if images.size == 0:
            raise DataError(f"{path}: {array} is empty: its shape is {images.shape}")
        if images.dtype.kind not in "iuf":
            raise DataError(
                f"{path}: {array} has the type {images.dtype}; images are uint8, or floats in "
                "[0, 1] or [0, 255]"
            )
        lowest, highest = images.min(), images.max()
        # Written so that NaN, which compares with nothing, is refused as well.
        if not (lowest >= 0 and highest <= 255):
            raise DataError(
                f"{path}: {array} holds values from {lowest} to {highest}; images are uint8, or "
                "floats in [0, 1] or [0, 255]"
            )
        ranges.append(float(highest))
    if (train.dtype.kind == "f") != (test.dtype.kind == "f"):
        raise DataError(
            f"{path}: x_train has the type {train.dtype} but x_test {test.dtype}; both are "
            "integers or both are floats, so that one scale serves both"
        )
    # One scale for the whole archive: dark test images must not be brightened on their own.
    scale = 255.0 if train.dtype.kind == "f" and max(ranges) <= 1 else 1.0
    return _to_uint8(train, scale), _to_uint8(test, scale)


def _to_uint8(images: npt.NDArray[Any], scale: float) -> Images:
    if images.dtype.kind == "f":
        images = np.rint(images * scale)
    if images.ndim == 3:
        images = images[..., np.newaxis]
    return images.astype(np.uint8, copy=False)


def _class_names(
    path: Path, names: npt.NDArray[Any] | None, train_labels: Labels
) -> tuple[str, ...]:
    if names is None:
        highest, present = int(train_labels.max()), np.unique(train_labels).size
        # Some classes may lack an example, but not most: a stray label would make a class of every
        # number below it.
        if highest + 1 > 2 * present:
            where = int(np.argmax(train_labels))
            raise DataError(
                f"{path}: y_train[{where}] is the label {highest}, which makes {highest + 1} "
                f"classes, and only {present} have an example; correct the label, number the "
                "classes from 0, or name all of them in an array class_names"
            )
        return tuple(str(label) for label in range(highest + 1))
    if names.ndim != 1 or names.dtype.kind != "U":
        raise DataError(
            f"{path}: class_names has the type {names.dtype} and the shape {names.shape}; it is a "
            "list of strings"
        )
    return tuple(str(name) for name in names)
