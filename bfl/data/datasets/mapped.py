"""Folders of NumPy arrays that are larger than memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.archive import CALLED
from bfl.data.datasets.base import Dataset, dataset_sources
from bfl.data.datasets.labels import numbered_classes
from bfl.data.datasets.paths import PathSource
from bfl.data.datasets.reading import Reading
from bfl.errors import DataError


@dataset_sources.register("mapped")
class Mapped(PathSource):
    """A folder of arrays larger than memory: ``mapped:PATH`` with x_train.npy and so on.

    x_train.npy and x_test.npy are uint8 [N, H, W, C]; they stay on the disk, and a client reads its
    own images alone. y_train.npy and y_test.npy hold labels as in an archive (``npz:PATH``).
    ``image-size`` and ``image-channels`` would make copies, and are refused.
    """

    is_folder: ClassVar[bool | None] = True

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the arrays' paths."""
        folder = self.find(location, data_dir)
        paths = [folder / f"{name}.npy" for name in CALLED.values()]
        return tuple(path for path in paths if path.is_file())

    def load(self, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the folder, its images as arrays on the disk."""
        folder = self.find(location, data_dir)
        arrays = {name: _opened(folder / f"{name}.npy") for name in CALLED.values()}
        for name in ("x_train", "x_test"):
            if arrays[name].dtype != np.uint8 or arrays[name].ndim != 4:
                raise DataError(
                    f"{folder / name}.npy has the type {arrays[name].dtype} and the shape "
                    f"{arrays[name].shape}; images that stay on the disk are uint8 [N, H, W, C]"
                )
        labels = {name: np.array(arrays[name]) for name in ("y_train", "y_test")}
        try:
            classes = numbered_classes(labels, ())
        except DataError as error:
            raise DataError(f"{folder}: {error}") from error
        dataset = Dataset(
            name=f"{self.name}:{location}",
            train_images=arrays["x_train"],
            train_labels=classes.labels[0],
            test_images=arrays["x_test"],
            test_labels=classes.labels[1],
            class_names=classes.names,
            numbered_here=classes.here,
        )
        dataset.check(CALLED)
        return dataset

    def load_in(self, reading: Reading, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the folder.

        Raises:
            DataError: As for ``load``, or the run says another shape.
        """
        if reading.size or reading.channels:
            raise DataError(
                f"dataset '{self.name}:{location}' stays on the disk, and image-size or "
                "image-channels would copy it into memory; store its images in that shape"
            )
        return self.load(location, data_dir)


def _opened(path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read as an array: {error}") from error
