"""Data sets, and the base of their sources."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.encoding import FAR, Column, Encoding, count_missing_cells
from bfl.data.datasets.reading import Reading
from bfl.data.images import Images
from bfl.data.partitions.base import Columns
from bfl.errors import ConfigurationError, DataError
from bfl.files import given_path, near_path
from bfl.registry import Component, Registry
from bfl.texts import assigned, few, spelt_alike

if TYPE_CHECKING:
    from pandas import DataFrame

Labels = npt.NDArray[np.int64]
Targets = npt.NDArray[np.float32 | np.float64]


def digest_of(*arrays: npt.NDArray[Any] | None) -> str:
    """Return the SHA-256 of arrays with their types and shapes, as hexadecimal digits."""
    found = hashlib.sha256()
    for array in (array for array in arrays if array is not None):
        found.update(f"{array.dtype.str} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).data if array.size else b"")
    return found.hexdigest()


@dataclass(frozen=True)
class Task:
    """One of several data sets that are one here; its labels begin at ``first_class``.

    ``clients`` is how many have it; None: all that are left.
    """

    name: str
    first_class: int
    num_classes: int
    clients: int | None

    def holds(self, labels: Labels) -> npt.NDArray[np.bool_]:
        """Return which of some labels are its own."""
        return (labels >= self.first_class) & (labels < self.first_class + self.num_classes)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images for training and testing; nothing may rely on their order.

    Attributes:
        name: The word that picked it.
        train_images: [N, H, W, C], uint8 or float32: 0 is black and 255 white.
        train_labels: int64 [N], classes counted from 0.
        class_names: One name per class, also of classes without an example.
        tasks: The data sets that it is made of, where clients have different ones.
        numbered_here: How its labels became numbers, if other data of the same classes may number
            them otherwise; else empty.
        split_here: True if ``test-share`` has split it.
        train_columns: What partitions may go by, of each training example, such as its site.
        encoding: What the columns of a table have become; None: these are images.
        target: Mean and deviation of the numbers that are predicted, if they are. Labels then say
            whether they are above the median, for partitions.
        train_targets: The numbers of the training examples, (N,), in their unit.
        said: Lines on how it was read, such as what was left out.
    """

    name: str
    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    class_names: tuple[str, ...]
    tasks: tuple[Task, ...] = ()
    numbered_here: str = ""
    split_here: bool = False
    train_columns: Columns = field(default_factory=dict)
    test_columns: Columns = field(default_factory=dict)
    encoding: Encoding | None = None
    target: Column | None = None
    train_targets: Targets | None = None
    test_targets: Targets | None = None
    said: tuple[str, ...] = ()

    @property
    def trained_on(self) -> Labels | Targets:
        """Answers for training: labels, or numbers with the mean 0 and the deviation 1."""
        if self.train_targets is None or self.target is None:
            return self.train_labels
        standard = (self.train_targets - self.target.mean) / self.target.deviation
        return np.asarray(standard, np.float32)

    @property
    def tested_on(self) -> Labels | Targets:
        """Answers that predictions are compared with; numbers are in their own unit."""
        return self.test_labels if self.test_targets is None else self.test_targets

    @property
    def num_classes(self) -> int:
        """The number of classes C."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        height, width, channels = self.train_images.shape[1:]
        return height, width, channels

    @cached_property
    def train_digest(self) -> str:
        """Digest of the training images and answers."""
        return digest_of(self.train_images, self.train_labels, self.train_targets)

    @cached_property
    def test_digest(self) -> str:
        """Digest of the test images and answers."""
        return digest_of(self.test_images, self.test_labels, self.test_targets)

    def all_for_testing(self) -> Dataset:
        """Return the data set with all examples for testing, and none for training."""
        joined: dict[str, Any] = {}
        for what in ("images", "labels", "targets"):
            if (train := getattr(self, f"train_{what}")) is not None:
                joined[f"test_{what}"] = np.concatenate([train, getattr(self, f"test_{what}")])
                joined[f"train_{what}"] = train[:0]
        joined["train_columns"] = {name: of[:0] for name, of in self.train_columns.items()}
        joined["test_columns"] = {
            name: np.concatenate([values, self.test_columns[name]])
            for name, values in self.train_columns.items()
        }
        return replace(self, **joined)

    def task_of_each(self, clients: int) -> tuple[Task, ...]:
        """Return the task of each client, in the order of partition ids."""
        entries = [(task.name, task.clients) for task in self.tasks]
        tasks = tuple(self.tasks[k] for k in assigned(entries, clients, "dataset 'tasks:...'"))
        if self.tasks[-1] not in tasks:
            raise ConfigurationError(
                f"dataset is '{self.name}', and all {clients} clients have the data sets before "
                f"'{entries[-1][0]}'; allowed: numbers that sum to less, or more clients"
            )
        return tasks

    def check(self, called: Mapping[str, str] | None = None) -> None:
        """Refuse arrays that are not as promised, by the source's names (``x_train``) if given."""

        def refuse(array: str, problem: str) -> None:
            raise DataError(f"{self.name}: {(called or {}).get(array, array)} {problem}")

        present = np.unique(self.train_labels)
        if present.size == 1 and self.train_targets is None:
            only = dict(enumerate(self.class_names)).get(int(present[0]), present[0])
            refuse("train_labels", f"holds the class '{only}' only; allowed: two or more")
        shape = self.train_images.shape[1:]
        for split in ("train", "test"):
            images, labels = (getattr(self, f"{split}_{what}") for what in ("images", "labels"))
            given = f"the type {images.dtype} and the shape {images.shape}"
            if images.dtype not in (np.uint8, np.float32) or images.ndim != 4 or images.size == 0:
                allowed = "uint8 or float32 [N, H, W, C], N >= 1"
                refuse(f"{split}_images", f"has {given}; allowed: {allowed}")
            if images.shape[1:] != shape:
                own = f"{images.shape[1:]} (height, width, channels)"
                refuse(f"{split}_images", f"are {own}, those for training {shape}")
            if labels.dtype != np.int64 or labels.shape != (len(images),):
                form = f"the type {labels.dtype} and the shape {labels.shape}"
                refuse(f"{split}_labels", f"has {form}; labels of {len(images)} images are int64")
            if labels.min() < 0 or labels.max() >= self.num_classes:
                span = f"labels from {labels.min()} to {labels.max()}"
                refuse(f"{split}_labels", f"holds {span}; allowed: 0 to {self.num_classes - 1}")


def rows_of(dataset: Dataset) -> DataFrame:
    """Return the rows of a table, those to train on before those to test on."""
    import pandas

    parts = (dataset.train_columns, dataset.test_columns)
    return pandas.concat([pandas.DataFrame(dict(part)) for part in parts], ignore_index=True)


FEW_FAR = 3
"""Values far from a column's mean that are named; more are the tail of a wide distribution."""


def dataset_warnings(dataset: Dataset, site: str = "") -> list[str]:
    """Return warnings: how it was read, empty cells, also by a column ``site``, absent classes."""
    lines = list(dataset.said)
    if dataset.encoding:
        rows, names = rows_of(dataset), [column.name for column in dataset.encoding.columns]
        if gaps := count_missing_cells(rows, names):
            shown = few([f"{name} {count}" for name, count in gaps.items()], 30)
            lines.append(f"{dataset.name}: without a value, of {len(rows)} rows: {shown}")
        for column in (each for each in dataset.encoding.columns if not each.categories):
            far = sum(map(bool, column.warnings(rows[column.name])))
            if 0 < far <= FEW_FAR:
                beyond = f"beyond {FAR:g} deviations of the mean"
                lines.append(f"{dataset.name}: {column.name} has {far} of {len(rows)} {beyond}")
        for value, own in rows.groupby(site) if site in rows else ():
            values = {n: len(own) - gap for n, gap in count_missing_cells(own, names).items()}
            if scarce := [f"{n} {count}" for n, count in values.items() if 10 * count <= len(own)]:
                scarcely = f"of {len(own)} rows at most a tenth have a value: {few(scarce)}"
                lines.append(f"{dataset.name}: {site} {value}: {scarcely}")
    for alike in spelt_alike(dataset.class_names) if dataset.target is None else ():
        lines.append(f"{dataset.name}: classes differ in capitals or spaces alone: {few(alike)}")
    for split in ("train", "test"):
        counts = np.bincount(getattr(dataset, f"{split}_labels"), minlength=dataset.num_classes)
        absent = [dataset.class_names[label] for label in np.flatnonzero(counts == 0)]
        if absent and counts.any():  # else all are for the other
            lines.append(
                f"{dataset.name}: no {split} example of {len(absent)} of {dataset.num_classes} "
                f"classes: {few(absent)}"
            )
    return lines


class DatasetSource(Component):
    """Source of data sets: the word before the colon in the key ``dataset``.

    Attributes:
        location_form: What has to stand behind the colon (``PATH``), or nothing. A node takes it
            for a path, and refuses such a word of a server's (``allow-run-paths``).
        takes_pixel_range: Whether the key ``pixel-range`` says the scale of its images.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    location_form: ClassVar[str] = ""
    takes_pixel_range: ClassVar[bool] = False

    @abstractmethod
    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set; a DataError if it cannot be had."""

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Raise a ConfigurationError, without reading images, if there is nothing to load."""
        if bool(location) != bool(self.location_form):
            form = f"{self.name}:{self.location_form}" if self.location_form else self.name
            given = f"{self.name}:{location}" if location else self.name
            raise ConfigurationError(f"dataset '{given}': write it as '{form}'")

    def parts(self, location: str) -> list[tuple[DatasetSource, str]]:
        """Return the sources that are loaded, each with what stands behind its colon."""
        return [(self, location)]

    def absolute(self, location: str, data_dir: Path | None) -> str:
        """Return what stands behind the colon, such that the current folder does not matter."""
        return location

    def portable(self, location: str) -> str:
        """Return what stands behind the colon, the same on every machine."""
        return location

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the files that ``load`` reads, which somebody may overwrite."""
        return ()


class PathSource(DatasetSource):
    """Base of sources with a path; a relative one is looked up here, then in ``data-dir``."""

    location_form: ClassVar[str] = "PATH"
    is_folder: ClassVar[bool | None] = False
    """True if the path is that of a folder, False if of a file; None: of either."""

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check that it is there."""
        self.find(location, data_dir)

    def absolute(self, location: str, data_dir: Path | None) -> str:
        """Return the absolute path."""
        return str(self.find(location, data_dir).resolve())

    def portable(self, location: str) -> str:
        """Return the name of the file or folder."""
        return PurePath(location).name

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the path."""
        return (self.find(location, data_dir),)

    def find(self, location: str, data_dir: Path | None) -> Path:
        """Return the path of the file or folder."""
        super().check_location(location, data_dir)
        path = given_path(location, "dataset")
        # Joining an absolute path to a folder gives the absolute path again.
        beside = [] if data_dir is None else [given_path(data_dir / path, "dataset in data-dir")]
        tried = list(dict.fromkeys([path, *beside]))
        for candidate in tried:
            if self._takes(candidate):
                return candidate
        kind = {True: "folder", False: "file", None: "file or folder"}[self.is_folder]
        takes = [p for other in tried for p in other.parent.glob("[!.]*") if self._takes(p)]
        raise ConfigurationError(
            f"dataset '{self.name}:{location}': there is no {kind} {' nor '.join(map(str, tried))};"
            f" allowed: a path relative to the current folder or to the key data-dir"
            f"{near_path(path, takes)}"
        )

    def _takes(self, path: Path) -> bool:
        is_file, is_folder = path.is_file(), path.is_dir()
        return (is_folder if self.is_folder else is_file) or (self.is_folder is None and is_folder)


SOURCES = {".csv": "table", ".parquet": "table", ".npz": "npz"}
"""Sources of files, by the end of their names."""

dataset_sources: Registry[DatasetSource] = Registry("dataset", "bfl.data.datasets")


def source_and_location(word: str) -> tuple[DatasetSource, str]:
    """Return the source that a word picks, and what stands behind its colon."""
    spelling, _, location = word.strip().partition(":")
    if spelling and spelling not in dataset_sources:
        path = given_path(word, "dataset")
        kind = "folder" if path.is_dir() else SOURCES.get(path.suffix.lower())
        if kind and path.exists():
            raise ConfigurationError(f"unknown dataset '{word}'; did you mean '{kind}:{word}'?")
    return dataset_sources.create(spelling), location.strip()
