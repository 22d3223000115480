"""Folders of images: by class, or with a file of labels."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.base import Dataset, Labels, PathSource, dataset_sources, suggest_word
from bfl.data.datasets.encoding import columns_of, normalize
from bfl.data.datasets.reading import TARGET, UNREADABLE, Reading
from bfl.data.datasets.subset import divide
from bfl.data.datasets.table import Answers, answers_of, read_table, target_column
from bfl.data.images import Images, pixels_of
from bfl.data.partitions.base import Columns
from bfl.errors import DataError, nearest, unknown_name
from bfl.texts import few, printable, read_text

CLASSES = "classes.txt"  # the classes' names, one a line, in the order of their numbers
LABELS = "labels.csv"  # the answers of images: a column of their files, and others
SITE = "site"  # the column that the folders above the classes fill
SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff"),
    *(".webp", ".ppm", ".pgm", ".pbm", ".jp2"),
)
SHOWN = 3  # images in a warning


@dataclass
class Unused:
    """Paths of what a run does not use of a folder, by reason."""

    root: Path
    paths: dict[str, list[Path]] = field(default_factory=dict)

    def add(self, reason: str, path: Path) -> None:
        """Count a path by its reason."""
        self.paths.setdefault(reason, []).append(path)

    def notes(self) -> list[str]:
        """Return a line on them, if there are any."""
        parts = []
        for reason, paths in self.paths.items():
            shown = few([path.relative_to(self.root).as_posix() for path in paths], SHOWN)
            parts.append(f"{len(paths)} {reason} ({shown})")
        return [f"{self.root}: not used are {', '.join(parts)}"] if parts else []


def files_below(
    folder: Path, unused: Unused | None = None, above: tuple[Path, ...] = ()
) -> Iterator[Path]:
    """Yield files below a folder in order, without hidden ones and circles of links."""
    above = (*above, folder.resolve())
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".")
        if hidden or (path.is_dir() and path.resolve() in above):
            if unused:
                unused.add("hidden files or folders" if hidden else "links to a folder above", path)
        elif path.is_dir():
            yield from files_below(path, unused, above)
        else:
            yield path


def pictures_below(folder: Path, unused: Unused, known: Sequence[Path] = ()) -> list[Path]:
    """Return the files below, or the file, that are images by their endings."""
    found = []
    for path in files_below(folder, unused) if folder.is_dir() else [folder]:
        if not path.exists():
            unused.add("links that lead nowhere", path)
        elif not path.is_file():  # a pipe, from which nothing may ever come
            unused.add("neither files nor folders", path)
        elif path.suffix.lower() in SUFFIXES:
            found.append(path)
        elif path not in known:
            unused.add("files of other endings", path)
    return found


def read_pictures(
    paths: Sequence[Path], reading: Reading, unused: Unused
) -> tuple[Images, set[Path]]:
    """Return the images in files (N, H, W, C), and the damaged files, which are left out."""
    damaged: set[Path] = set()

    def open_images() -> Iterator[tuple[str, Images]]:
        for path in paths:
            try:
                yield str(path), _open_picture(path, unused)
            except DataError as error:
                if reading.unreadable != "skip":
                    hint = f'{UNREADABLE}="skip" leaves such images out'
                    raise DataError(f"{error}; {hint}") from error
                damaged.add(path)
                unused.add("damaged images", path)
                if len(damaged) == len(paths):
                    raise DataError(f"none of {len(paths)} images can be read: {error}") from error

    return reading.stack(open_images(), len(paths)), damaged


def _open_picture(path: Path, unused: Unused) -> Images:
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            if getattr(image, "n_frames", 1) > 1:
                unused.add("images with further pages", path)
            ImageOps.exif_transpose(image, in_place=True)
            pixels = pixels_of(image)
            if image.mode.endswith(("A", "a")) or "transparency" in image.info:
                unused.add("transparencies of images", path)
            return pixels
    # Pillow and its decoders have exceptions of their own, by what is damaged.
    except Exception as error:
        raise DataError(f"{path} cannot be read: {error}") from error


@dataclass(frozen=True)
class _Files:
    """Images by their paths (N,), with their answers and what else is known of each."""

    paths: npt.NDArray[np.str_]
    answers: Answers
    columns: Columns

    def part(self, positions: Labels) -> _Files:
        labels = self.answers.labels[positions]
        columns = {name: values[positions] for name, values in self.columns.items()}
        return _Files(self.paths[positions], self.answers._replace(labels=labels), columns)


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
        """Return files of answers and classes, and all folders, which change with their images."""
        walked = list(os.walk(self.find(location, data_dir)))
        answers = [
            Path(path, name)
            for path, _, files in walked
            for name in (LABELS, CLASSES)
            if name in files
        ]
        return (*answers, *(Path(path) for path, _, _ in walked))

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the folder, each image brought into its shape when it is read."""
        root = self.find(location, data_dir)
        parts = [root / "train", root / "test"]
        given = all(part.is_dir() for part in parts)
        parts = parts if given else [root]
        listed = [(part / LABELS).is_file() for part in parts]
        if given and ((root / LABELS).is_file() or len({*listed}) > 1):
            raise DataError(f"{root}: {LABELS} lies in both of them or in neither, train and test")
        if reading.target and not listed[0]:
            raise DataError(f"{parts[0]} has no {LABELS}, of which the key {TARGET} is a column")
        unused = Unused(root)
        if given:
            for path in files_below(root):
                if path.relative_to(root).parts[0] not in ("train", "test", CLASSES):
                    unused.add("files beside train and test", path)
        read = _read_listed if listed[0] else _read_by_class
        every, names = [], _class_order(root)
        for part in parts:
            every.append(read(part, reading, names, unused))
            names = every[0].answers.names
        if not given:
            divided = divide(every[0].answers.labels, every[0].columns, reading, str(root))
            every = [every[0].part(positions) for positions in divided]
        paths = [Path(path) for files in every for path in files.paths]
        images, damaged = read_pictures(paths, reading, unused)
        train, test = _drop_damaged(root, every, damaged)
        count = len(train.paths)
        return Dataset(
            name=f"{self.name}:{location}",
            train_images=images[:count],
            train_labels=train.answers.labels,
            test_images=images[count:],
            test_labels=test.answers.labels,
            class_names=train.answers.names,
            numbered_here=train.answers.here,
            split_here=not given,
            train_columns=train.columns,
            test_columns=test.columns,
            said=tuple(dict.fromkeys((*train.answers.notes, *test.answers.notes, *unused.notes()))),
        )


def _drop_damaged(root: Path, every: Sequence[_Files], damaged: set[Path]) -> list[_Files]:
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
            f"{root} has no folders of images; allowed: PATH/CLASS/IMAGE, or PATH/{LABELS} with "
            f"their files in its first column{suggest_word(root, 'folder')}"
        )
    if len(by_depth) > 1 or max(by_depth) > 3:
        shown = " and ".join(path.relative_to(root).as_posix() for path in by_depth.values())
        raise DataError(
            f"{root} has {shown}; all images lie as PATH/CLASS/IMAGE, or all as "
            "PATH/SITE/CLASS/IMAGE"
        )
    (depth,) = by_depth
    full = {path.parent for path in pictures}
    for folder in sorted(root.glob("/".join(["[!.]*"] * (depth - 1)))):
        if folder.is_dir() and folder not in full:
            raise DataError(f"{folder} has no image; a class has some, or no folder")
    kinds = [normalize(path.parent.name) for path in pictures]
    known = tuple(names) or tuple(sorted(set(kinds)))
    number = {name: label for label, name in enumerate(known)}
    for path, kind in zip(pictures, kinds, strict=True):
        if kind not in number:
            raise DataError(f"{path.parent}: {unknown_name('class', printable(kind), known)}")
    changed = sorted({path.parent.name for path in pictures} - set(kinds))
    note = f"{root}: names of classes lose spaces or are composed (NFC): {few(changed)}"
    here = f"classes are numbered in the order of their folders' names, without {CLASSES}"
    labels = np.array([number[kind] for kind in kinds], np.int64)
    notes = (note,) if changed else ()
    answers = Answers(labels, None, known, "" if names else here, notes)
    sites = {SITE: np.array([normalize(path.parent.parent.name) for path in pictures])}
    return _Files(np.array(list(map(str, pictures))), answers, sites if depth == 3 else {})


def _read_listed(root: Path, reading: Reading, names: Sequence[str], unused: Unused) -> _Files:
    path = root / LABELS
    rows = read_table(path)
    given = rows.pop(rows.columns[0])
    found: dict[str, Path] = {}
    for file in pictures_below(root, unused, (root / CLASSES, path)):
        name = normalize(file.relative_to(root).as_posix())
        if name in found:
            raise DataError(
                f"{root} has {found[name].name!a} and {file.name!a}, one name when composed (NFC)"
            )
        found[name] = file
    lines = Counter(normalize(str(name)) for name in given)
    for name, times in lines.items():
        if name not in found:
            guess = nearest(name, found)
            raise DataError(
                f"{path}: column '{given.name}' names '{printable(name)}', which is no image below "
                f"{root}" + (f"; did you mean '{guess}'?" if guess else "")
            )
        if times > 1:
            raise DataError(f"{path}: '{printable(name)}' stands in two lines")
    if without := sorted(found.keys() - lines.keys()):
        raise DataError(
            f"{path} has no line for {len(without)} of {len(found)} images, such as '{without[0]}'"
        )
    target = target_column(path, rows, reading)
    answers = answers_of(path, rows[target], reading.task, tuple(names))
    return _Files(np.array([str(found[name]) for name in lines]), answers, columns_of(rows))


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
