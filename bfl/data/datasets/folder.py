"""Folders of images by class."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.base import Dataset, Labels, PathSource, dataset_sources, suggest_word
from bfl.data.datasets.columns import columns_of, normalize
from bfl.data.datasets.pictures import Unused, files_below, pictures_below, read_pictures
from bfl.data.datasets.reading import TARGET, Reading
from bfl.data.datasets.subset import divide
from bfl.data.datasets.table import Answers, answers_of, read_table, target_column
from bfl.data.partitions.base import Columns
from bfl.errors import DataError, nearest, unknown_name
from bfl.texts import few, printable, read_text

CLASSES = "classes.txt"
"""File that names the classes, one a line, in the order of their numbers."""

LABELS = "labels.csv"
"""File whose lines say the answers of images: a column of their files, and others."""

SITE = "site"
"""Name of the column that the folders above the classes fill."""


@dataclass(frozen=True)
class _Files:
    """Images by their paths (N,), with their answers and what else is known of each."""

    paths: npt.NDArray[np.str_]
    answers: Answers
    columns: Columns

    def part(self, positions: Labels) -> _Files:
        columns = {name: values[positions] for name, values in self.columns.items()}
        return _Files(self.paths[positions], self.answers.part(positions), columns)


@dataset_sources.register("folder")
class Folder(PathSource):
    """A folder of images by class: ``folder:PATH`` with PATH/CLASS/IMAGE, or PATH/SITE/CLASS/IMAGE.

    With a file PATH/labels.csv, images lie anywhere below PATH: its first column has their files,
    the column ``target`` the classes, and partitions may go by any. Where there are PATH/train and
    PATH/test, each of them is such a folder; else ``test-share`` of each class is for testing.
    Classes are numbered in the order of their names, or of the lines of PATH/classes.txt. Images of
    several sizes need ``image-size``. Grey ones among colours get three equal channels,
    transparency is dropped, and 16 bits are kept as floats. Damaged ones are refused, or left out
    (``unreadable-images="skip"``); files that are not used are counted. Folders above the classes
    are the column ``site`` (``partition="column:site"``).
    """

    is_folder: ClassVar[bool | None] = True

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return files of answers, and all folders, which change where an image comes or goes."""
        walked = list(os.walk(self.find(location, data_dir)))
        answers = [Path(path, LABELS) for path, _, files in walked if LABELS in files]
        return (*answers, *(Path(path) for path, _, _ in walked))

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
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
        unused = Unused(root)
        if given:
            for path in files_below(root):
                if path.relative_to(root).parts[0] not in ("train", "test", CLASSES):
                    unused.add("files beside train and test", path)
        read = _read_listed if listed else _read_by_class
        train = read(first, reading, _class_order(root), unused)
        every = [train, *(read(part, reading, train.answers.names, unused) for part in others)]
        if not given:
            divided = divide(train.answers.labels, train.columns, reading, str(root))
            every = [train.part(positions) for positions in divided]
        paths = [Path(path) for files in every for path in files.paths]
        images, damaged, notes = read_pictures(paths, reading, unused)
        every = _drop_damaged(root, every, damaged)
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
            said=(*dict.fromkeys(n for a in answers for n in a.notes), *notes, *unused.notes()),
            unused=unused.counts(),
        )
        dataset.check()
        return dataset


def _drop_damaged(root: Path, every: Sequence[_Files], damaged: dict[Path, str]) -> list[_Files]:
    left = [f.part(np.flatnonzero([Path(path) not in damaged for path in f.paths])) for f in every]
    before, after = ([set(f.answers.labels.tolist()) for f in files] for files in (every, left))
    if lost := sorted((before[0] - after[0]) | (set.union(*before) - set.union(*after))):
        names = ", ".join(printable(left[0].answers.names[label]) for label in lost)
        raise DataError(
            f"{root}: without {len(damaged)} images that cannot be read, of the class {names} no "
            "image is left to train on"
        )
    return left


def _read_by_class(root: Path, reading: Reading, names: Sequence[str], unused: Unused) -> _Files:
    pictures = []
    for path in pictures_below(root, unused, (root / CLASSES, root / LABELS)):
        if path.parent == root:
            unused.add("images beside the folders of classes", path)
        else:
            pictures.append(path)
    by_depth = {len(path.relative_to(root).parts): path for path in reversed(pictures)}
    if not by_depth:
        raise DataError(
            f"{root} has no folders of images; they lie in one folder a class (PATH/CLASS/IMAGE), "
            f"or PATH/{LABELS} names their files in its first column{suggest_word(root, 'folder')}"
        )
    if len(by_depth) > 1 or max(by_depth) > 3:
        shown = " and ".join(path.relative_to(root).as_posix() for path in by_depth.values())
        raise DataError(
            f"{root} has {shown}; all images lie as PATH/CLASS/IMAGE, or all as "
            "PATH/SITE/CLASS/IMAGE"
        )
    (depth,) = by_depth
    full = {path.parent for path in pictures}
    for folder in sorted(root.glob("/".join("*" * (depth - 1)))):
        hidden = any(part.startswith(".") for part in folder.relative_to(root).parts)
        if folder.is_dir() and folder not in full and not hidden:
            other = next((f": {file.name} is none" for file in files_below(folder)), "")
            raise DataError(f"{folder} has no image{other}; a class has some, or no folder")
    kinds = [normalize(path.parent.name) for path in pictures]
    known = tuple(names) or tuple(sorted(set(kinds)))
    number = {name: label for label, name in enumerate(known)}
    for path, kind in zip(pictures, kinds, strict=True):
        if kind not in number:
            raise DataError(f"{path.parent}: {unknown_name('class', printable(kind), known)}")
    changed = sorted({path.parent.name for path in pictures} - set(kinds))
    notes = f"{root}: names of classes lose spaces or are composed (NFC): {few(changed)}"
    here = f"classes are numbered in the order of their folders' names, without {CLASSES}"
    answers = Answers(
        np.array([number[kind] for kind in kinds], np.int64),
        None,
        known,
        "" if names else here,
        (notes,) if changed else (),
    )
    sites = {SITE: np.array([normalize(path.parent.parent.name) for path in pictures])}
    return _Files(np.array(list(map(str, pictures))), answers, sites if depth == 3 else {})


def _read_listed(root: Path, reading: Reading, names: Sequence[str], unused: Unused) -> _Files:
    path = root / LABELS
    rows = read_table(path)
    given = rows.pop(rows.columns[0])
    found: dict[str, Path] = {}
    for file in pictures_below(root, unused, (root / CLASSES, root / LABELS)):
        name = normalize(file.relative_to(root).as_posix())
        if name in found:
            raise DataError(
                f"{root} has {found[name].name!a} and {file.name!a}, whose names are one when "
                "letters are composed (NFC) and spaces dropped; rename one of them"
            )
        found[name] = file
    lines = [normalize(str(name)) for name in given]
    for name in lines:
        if name not in found:
            guess = nearest(name, found)
            hint = f"; did you mean '{guess}'?" if guess else ""
            raise DataError(
                f"{path}: column '{given.name}' names '{printable(name)}', which is no image below "
                f"{root}{hint}"
            )
    if twice := [name for name, lines_of in Counter(lines).items() if lines_of > 1]:
        raise DataError(f"{path}: '{printable(twice[0])}' stands in two lines")
    if without := sorted(found.keys() - set(lines)):
        raise DataError(
            f"{path} has no line for {len(without)} of {len(found)} images, such as '{without[0]}'"
        )
    target = target_column(path, rows, reading)
    answers = answers_of(path, rows[target], reading.task, tuple(names))
    paths = np.array([str(found[name]) for name in lines])
    return _Files(paths, answers, columns_of(rows))


def _class_order(root: Path) -> tuple[str, ...]:
    path = root / CLASSES
    if not path.is_file():
        return ()
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    names = tuple(filter(None, map(normalize, lines)))
    if len(set(names)) < len(names) or not names:
        raise DataError(f"{path} has {'a name twice' if names else 'no names'}; one a line")
    return names
