"""Folders of images by class."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.base import Dataset, Labels, dataset_sources
from bfl.data.datasets.paths import PathSource
from bfl.data.datasets.pictures import pixels_of, stacked
from bfl.data.datasets.reading import AS_STORED, TEST_SHARE, Reading
from bfl.data.datasets.subset import train_and_test
from bfl.data.images import Images
from bfl.data.partitions.base import Columns
from bfl.errors import DataError, unknown_name
from bfl.texts import printable

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff"),
    *(".webp", ".ppm", ".pgm", ".pbm", ".jp2"),
)
"""Endings of the files that are read as images."""

CLASSES = "classes.txt"
"""File that names the classes, one a line, in the order of their numbers."""

SITE = "site"
"""Name of the column that the folders above the classes fill."""


@dataclass(frozen=True)
class _Files:
    """Images by their paths (N,), each with the name of its class and of its site, if any."""

    paths: npt.NDArray[np.object_]
    classes: npt.NDArray[np.str_]
    sites: npt.NDArray[np.str_]

    def part(self, positions: Labels) -> _Files:
        return _Files(self.paths[positions], self.classes[positions], self.sites[positions])

    @property
    def columns(self) -> Columns:
        return {SITE: self.sites} if self.sites[0] else {}


@dataset_sources.register("folder")
class Folder(PathSource):
    """A folder of images by class: ``folder:PATH`` with PATH/CLASS/IMAGE, or PATH/SITE/CLASS/IMAGE.

    Where there are PATH/train and PATH/test, each of them is such a folder; else ``test-share`` of
    each class is for testing. Classes are numbered in the order of their names, or of the lines of
    PATH/classes.txt. Images of several sizes need ``image-size``. Grey ones among colours get three
    equal channels, transparency is dropped, and 16 bits are kept as floats. Sites are the column
    ``site`` (``partition="column:site"``).
    """

    is_folder: ClassVar[bool] = True
    reads_keys: ClassVar[frozenset[str]] = frozenset({TEST_SHARE})

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the folder and those in it, which change where an image comes or goes."""
        return tuple(Path(path) for path, _, _ in os.walk(self.find(location, data_dir)))

    def load(self, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the folder, its images as they are."""
        return self.load_in(AS_STORED, location, data_dir)

    def load_in(self, reading: Reading, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the folder, each image brought into its shape when it is read."""
        root = self.find(location, data_dir)
        parts = [root / "train", root / "test"]
        found = [_files(part) for part in parts] if all(p.is_dir() for p in parts) else []
        every = found or [_files(root)]
        names, here = _class_names(root, every[0])
        labels = [_numbers(root, files, names) for files in every]
        if not found:
            positions = train_and_test(labels[0], reading.test_share)
            labels = [labels[0][part] for part in positions]
            every = [every[0].part(part) for part in positions]
        paths = [path for files in every for path in files.paths]
        images = stacked(map(opened_picture, paths), len(paths), reading)
        train = len(labels[0])
        dataset = Dataset(
            name=f"{self.name}:{location}",
            train_images=images[:train],
            train_labels=labels[0],
            test_images=images[train:],
            test_labels=labels[1],
            class_names=names,
            numbered_here=here,
            split_here=not found,
            train_columns=every[0].columns,
            test_columns=every[1].columns,
        )
        dataset.check()
        return dataset


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _files(root: Path) -> _Files:
    """Return the images of a folder, in the order of their paths.

    Raises:
        DataError: It has no classes, one has no images, or only some classes lie below a site.
    """
    folders = [path for path in _visible(root) if path.is_dir()]
    if not folders:
        raise DataError(
            f"{root} has no folders; images lie in one folder a class: PATH/CLASS/IMAGE"
        )
    below = [any(path.is_dir() for path in _visible(folder)) for folder in folders]
    if len(set(below)) > 1:
        raise DataError(
            f"{folders[below.index(True)]} holds folders and {folders[below.index(False)]} none; "
            "all images lie as PATH/CLASS/IMAGE, or all as PATH/SITE/CLASS/IMAGE"
        )
    rows: list[tuple[Path, str, str]] = []
    for folder in folders:
        for kind in _visible(folder) if below[0] else [folder]:
            if kind.is_dir():
                site = folder.name if below[0] else ""
                rows += [(path, kind.name, site) for path in _images_in(kind)]
    paths = np.empty(len(rows), object)
    paths[:] = [path for path, _, _ in rows]
    return _Files(paths, *(np.array([row[i] for row in rows]) for i in (1, 2)))


def _images_in(folder: Path) -> Iterator[Path]:
    files = [path for path in _visible(folder) if path.is_file()]
    found = [path for path in files if path.suffix.lower() in SUFFIXES]
    if not found:
        others = f": {files[0].name} ends with none of {', '.join(SUFFIXES)}" if files else ""
        raise DataError(f"{folder} has no image{others}; a class has some, or no folder")
    return iter(found)


def _class_names(root: Path, train: _Files) -> tuple[tuple[str, ...], str]:
    """Return the classes' names in their order, and what is to be said of how it was found."""
    path = root / CLASSES
    if not path.is_file():
        names = tuple(map(str, np.unique(train.classes)))
        return names, f"classes are numbered in the order of their folders' names, without {path}"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(set(names)) < len(names) or not names:
        raise DataError(f"{path} has {'a name twice' if names else 'no names'}; one a line")
    return names, ""


def _numbers(root: Path, files: _Files, names: Sequence[str]) -> Labels:
    """Return the images' classes, (N,)."""
    number = {name: label for label, name in enumerate(names)}
    for name, path in zip(files.classes, files.paths, strict=True):
        if name not in number:
            raise DataError(f"{path.parent}: {unknown_name('class', printable(name), names)}")
    return np.array([number[name] for name in files.classes], np.int64)


def opened_picture(path: Path) -> tuple[str, Images]:
    """Return an image with its name, turned as its camera has said.

    Raises:
        DataError: It cannot be read.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            ImageOps.exif_transpose(image, in_place=True)
            return str(path), pixels_of(image)
    # Pillow and its decoders have exceptions of their own, by what is damaged.
    except Exception as error:
        raise DataError(f"{path} cannot be read: {error}") from error
