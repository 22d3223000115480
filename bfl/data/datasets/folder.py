"""Folders of images by class."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.answers import Answers, answers_of, target_column
from bfl.data.datasets.base import Dataset, Labels, ReadingSource, dataset_sources, meant
from bfl.data.datasets.columns import columns_of
from bfl.data.datasets.paths import PathSource
from bfl.data.datasets.pictures import pixels_of, stacked
from bfl.data.datasets.reading import TARGET, TEST_SHARE, UNREADABLE, Reading
from bfl.data.datasets.subset import train_and_test
from bfl.data.datasets.table import read_table
from bfl.data.images import Images
from bfl.data.partitions.base import Columns
from bfl.errors import DataError, nearest, unknown_name
from bfl.texts import few, printable

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff"),
    *(".webp", ".ppm", ".pgm", ".pbm", ".jp2"),
)
"""Endings of the files that are read as images."""

CLASSES = "classes.txt"
"""File that names the classes, one a line, in the order of their numbers."""

LABELS = "labels.csv"
"""File whose lines say the answers of images: a column of their files, and others."""

SHOWN = 3
"""Most images that a warning names."""

SITE = "site"
"""Name of the column that the folders above the classes fill."""


@dataclass(frozen=True)
class _Files:
    """Images by their paths (N,), with their answers and what else is known of each."""

    paths: npt.NDArray[np.object_]
    answers: Answers
    columns: Columns

    def part(self, positions: Labels) -> _Files:
        columns = {name: values[positions] for name, values in self.columns.items()}
        return _Files(self.paths[positions], self.answers.part(positions), columns)


@dataset_sources.register("folder")
class Folder(PathSource, ReadingSource):
    """A folder of images by class: ``folder:PATH`` with PATH/CLASS/IMAGE, or PATH/SITE/CLASS/IMAGE.

    With a file PATH/labels.csv, images lie anywhere below PATH: its first column has their files,
    the column ``target`` the classes, and partitions may go by any. Where there are PATH/train and
    PATH/test, each of them is such a folder; else ``test-share`` of each class is for testing.
    Classes are numbered in the order of their names, or of the lines of PATH/classes.txt. Images of
    several sizes need ``image-size``.
    Grey ones among colours get three equal channels, transparency is dropped, and 16 bits are kept
    as floats. Damaged ones are refused, or left out (``unreadable-images="skip"``). Folders above
    the classes are the column ``site`` (``partition="column:site"``).
    """

    is_folder: ClassVar[bool | None] = True
    reads_keys: ClassVar[frozenset[str]] = frozenset({TEST_SHARE, TARGET, UNREADABLE})

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return files of answers, and all folders, which change where an image comes or goes."""
        walked = list(os.walk(self.find(location, data_dir)))
        answers = [Path(path, LABELS) for path, _, files in walked if LABELS in files]
        return (*answers, *(Path(path) for path, _, _ in walked))

    def load_in(self, reading: Reading, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the folder, each image brought into its shape when it is read."""
        root = self.find(location, data_dir)
        parts = [root / "train", root / "test"]
        given = all(part.is_dir() for part in parts)
        first, *others = parts if given else [root]
        listed = (first / LABELS).is_file()
        above, train_has, test_has = ((part / LABELS).is_file() for part in (root, *parts))
        if given and (above or train_has != test_has):
            raise DataError(
                f"{root} has train and test: {LABELS} lies in both of them or in neither, and not "
                "beside them"
            )
        if not listed and reading.target:
            raise DataError(
                f"{first} has no {LABELS}, and its folders are the classes; the key {TARGET} is "
                "for a column of such a file"
            )
        read = _listed if listed else _by_class
        train = read(first, reading, _class_order(root))
        every = [train, *(read(part, reading, train.answers.names) for part in others)]
        if not given:
            every = [
                train.part(p) for p in train_and_test(train.answers.labels, reading.test_share)
            ]
        paths = [path for files in every for path in files.paths]
        damaged: dict[Path, str] | None = {} if reading.unreadable == "skip" else None
        transparent: list[Path] = []
        images = stacked(opened_pictures(paths, damaged, transparent), len(paths), reading)
        said = [_said(root, transparent, len(paths), "lose their transparency")]
        if damaged:
            every, line = _without(root, every, [*damaged])
            said.append(line)
        answers = [files.answers for files in every]
        count = len(answers[0].labels)
        dataset = Dataset(
            name=f"{self.name}:{location}",
            train_images=images[:count],
            train_labels=answers[0].labels,
            test_images=images[count:],
            test_labels=answers[1].labels,
            class_names=answers[0].names,
            numbered_here=answers[0].here,
            split_here=not given,
            train_columns=every[0].columns,
            test_columns=every[1].columns,
            said=tuple(filter(None, said)),
        )
        dataset.check()
        return dataset


def _said(root: Path, some: Sequence[Path], number: int, what: str) -> str:
    """Return what is to be said of some of a folder's images, which are counted; none: nothing."""
    shown = few([path.relative_to(root).as_posix() for path in some], SHOWN)
    return f"{root}: {len(some)} of {number} images {what}: {shown}" * bool(some)


def said_of_damaged(root: Path, damaged: Sequence[Path], number: int) -> str:
    """Return what is to be said of the damaged ones of a folder's images."""
    return _said(root, damaged, number, f"cannot be read and are left out ({UNREADABLE})")


def opened_pictures(
    paths: Iterable[Path], damaged: dict[Path, str] | None, transparent: list[Path]
) -> Iterator[tuple[str, Images]]:
    """Yield images with their names; what cannot be read is put among the damaged.

    Transparency is dropped, and its images are put among the transparent.

    Raises:
        DataError: It cannot be read, and they are not kept apart; or none of all can.
    """
    read = False
    for path in paths:
        try:
            yield opened_picture(path, transparent)
            read = True
        except DataError as error:
            if damaged is None:
                hint = f'{UNREADABLE}="skip" leaves such images out'
                raise DataError(f"{error}; {hint}") from error
            damaged[path] = str(error)
    if damaged and not read:
        raise DataError(
            f"none of {len(damaged)} images can be read: {next(iter(damaged.values()))}"
        )


def _without(
    root: Path, every: Sequence[_Files], damaged: Sequence[Path]
) -> tuple[list[_Files], str]:
    """Return the files for training and testing without damaged ones, and what is to be said.

    Raises:
        DataError: A class is left without an image, or without one for training.
    """
    gone, number = set(damaged), sum(len(files.paths) for files in every)
    left = [f.part(np.flatnonzero([path not in gone for path in f.paths])) for f in every]
    said = said_of_damaged(root, damaged, number)
    before, after = ([set(f.answers.labels.tolist()) for f in files] for files in (every, left))
    lost = sorted((before[0] - after[0]) | (set.union(*before) - set.union(*after)))
    if lost:
        names = ", ".join(printable(left[0].answers.names[label]) for label in lost)
        raise DataError(f"{said}; of the class {names} no image is left to train on")
    return left, said


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not _hidden(path, folder))


def _hidden(path: Path, root: Path) -> bool:
    """Return whether a path below a folder is one that systems leave there, such as ``._1.png``."""
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _by_class(root: Path, reading: Reading, names: Sequence[str]) -> _Files:
    """Return the images of a folder of classes, in the order of their paths.

    Args:
        reading: Keys of which this reads none.
        names: The classes in the order of their numbers; none: that of their names.

    Raises:
        DataError: It has no classes, one has no images or is unknown, or only some lie below a
            site.
    """
    folders = [path for path in _visible(root) if path.is_dir()]
    if not folders:
        raise DataError(
            f"{root} has no folders; images lie in one folder a class (PATH/CLASS/IMAGE), or "
            f"PATH/{LABELS} names their files in its first column{meant(root, 'folder')}"
        )
    below = [any(path.is_dir() for path in _visible(folder)) for folder in folders]
    if len(set(below)) > 1:
        raise DataError(
            f"{folders[below.index(True)]} holds folders and {folders[below.index(False)]} none; "
            "all images lie as PATH/CLASS/IMAGE, or all as PATH/SITE/CLASS/IMAGE"
        )
    rows: list[tuple[Path, Path, str]] = []
    for folder in folders:
        for kind in _visible(folder) if below[0] else [folder]:
            if kind.is_dir():
                rows += [(path, kind, folder.name) for path in _images_in(kind)]
    known = tuple(names) or tuple(sorted({kind.name for _, kind, _ in rows}))
    number = {name: label for label, name in enumerate(known)}
    for _, kind, _ in rows:
        if kind.name not in number:
            raise DataError(f"{kind}: {unknown_name('class', printable(kind.name), known)}")
    here = f"classes are numbered in the order of their folders' names, without {CLASSES}"
    labels = np.array([number[kind.name] for _, kind, _ in rows], np.int64)
    sites = {SITE: np.array([site for _, _, site in rows])} if below[0] else {}
    return _Files(
        _objects([path for path, _, _ in rows]),
        Answers(labels, None, known, "" if names else here),
        sites,
    )


def _listed(root: Path, reading: Reading, names: Sequence[str]) -> _Files:
    """Return the images that a file of answers names, in its order.

    Args:
        root: The folder that has the file, and images at any depth.
        reading: The column of the answers.
        names: The classes; none: not known.

    Raises:
        DataError: A line's image is not there, or an image has no line or two; or the answers
            are none of the task's.
    """
    path = root / LABELS
    rows = read_table(path)
    given = rows.pop(rows.columns[0])
    target = target_column(path, rows, reading)
    found = {
        file.relative_to(root).as_posix(): file
        for file in root.rglob("*")
        if file.suffix.lower() in SUFFIXES and file.is_file() and not _hidden(file, root)
    }
    lines = [str(name) for name in given]
    twice = given[given.duplicated()]
    for name in lines:
        if name not in found:
            guess = nearest(name, found)
            hint = f"; did you mean '{guess}'?" if guess else ""
            raise DataError(
                f"{path}: column '{given.name}' names '{printable(name)}', which is no image below "
                f"{root}{hint}"
            )
    if len(twice):
        raise DataError(f"{path}: '{printable(twice.iloc[0])}' stands in two lines")
    if without := sorted(found.keys() - set(lines)):
        raise DataError(
            f"{path} has no line for {len(without)} of {len(found)} images, such as '{without[0]}'"
        )
    answers = answers_of(path, rows[target], reading.task, tuple(names))
    return _Files(_objects([found[name] for name in lines]), answers, columns_of(rows))


def _objects(paths: Sequence[Path]) -> npt.NDArray[np.object_]:
    array = np.empty(len(paths), object)
    array[:] = paths
    return array


def _images_in(folder: Path) -> Iterator[Path]:
    files = [path for path in _visible(folder) if path.is_file()]
    found = [path for path in files if path.suffix.lower() in SUFFIXES]
    if not found:
        others = f": {files[0].name} ends with none of {', '.join(SUFFIXES)}" if files else ""
        raise DataError(f"{folder} has no image{others}; a class has some, or no folder")
    return iter(found)


def _class_order(root: Path) -> tuple[str, ...]:
    """Return the classes' names in the order that a file says; none without one."""
    path = root / CLASSES
    if not path.is_file():
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(set(names)) < len(names) or not names:
        raise DataError(f"{path} has {'a name twice' if names else 'no names'}; one a line")
    return names


def opened_picture(path: Path, transparent: list[Path] | None = None) -> tuple[str, Images]:
    """Return an image with its name, turned as its camera has said.

    Args:
        transparent: What gets its path if it has transparency, which is dropped.

    Raises:
        DataError: It cannot be read.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            ImageOps.exif_transpose(image, in_place=True)
            pixels = pixels_of(image)
            alpha = image.mode.endswith(("A", "a")) or "transparency" in image.info
            if alpha and transparent is not None:
                transparent.append(path)
            return str(path), pixels
    # Pillow and its decoders have exceptions of their own, by what is damaged.
    except Exception as error:
        raise DataError(f"{path} cannot be read: {error}") from error
