"""Folders of images by class."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from bfl.data.datasets.base import Dataset, PathSource, dataset_sources
from bfl.data.datasets.encoding import normalize
from bfl.data.datasets.reading import Reading
from bfl.data.datasets.subset import divide
from bfl.data.images import Images, pixels_of
from bfl.errors import DataError, unknown_name
from bfl.texts import few, printable, read_text

CLASSES = "classes.txt"  # the classes' names, one a line, in the order of their numbers
SITE = "site"  # the column that the folders above the classes fill
SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff"),
    *(".webp", ".ppm", ".pgm", ".pbm", ".jp2"),
)
SHOWN = 3  # files in a warning


def pictures_among(paths: Iterator[Path]) -> tuple[list[Path], list[Path]]:
    """Return the files that are images by their endings, in order, and the other files."""
    files = sorted(path for path in paths if path.is_file() and not path.name.startswith("."))
    found = [path for path in files if path.suffix.lower() in SUFFIXES]
    return found, [path for path in files if path.suffix.lower() not in SUFFIXES]


def read_pictures(paths: Sequence[Path], reading: Reading) -> Images:
    """Return the images in files (N, H, W, C); a DataError names all that are damaged."""
    problems: list[str] = []

    def sound() -> Iterator[tuple[str, Images]]:
        for path in paths:
            try:
                yield str(path), _open_picture(path)
            except DataError as error:
                problems.append(str(error))
        if problems:
            raise DataError(f"{len(problems)} of {len(paths)} images: {few(problems)}")

    return reading.stack(sound())


def read_unlabelled(path: Path, reading: Reading) -> tuple[tuple[str, ...], Images]:
    """Return the paths and the images (N, H, W, C) in and below a folder, or of one file.

    Hidden ones are passed over.
    """
    root = path.parent if path.is_file() else path
    below = (p for p in root.rglob("*") if "/." not in f"/{p.relative_to(root).as_posix()}")
    files, _ = pictures_among(iter([path]) if path.is_file() else below)
    if not files:
        raise DataError(f"{path} has no image; their names end with {', '.join(SUFFIXES)}")
    return tuple(str(each.relative_to(root)) for each in files), read_pictures(files, reading)


def _open_picture(path: Path) -> Images:
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            ImageOps.exif_transpose(image, in_place=True)
            return pixels_of(image)
    # Pillow and its decoders have exceptions of their own, by what is damaged.
    except Exception as error:
        raise DataError(f"{path} cannot be read: {error}") from error


@dataset_sources.register("folder")
class Folder(PathSource):
    """A folder of images by class: ``folder:PATH`` with PATH/CLASS/IMAGE, or PATH/SITE/CLASS/IMAGE.

    Where there are PATH/train and PATH/test, each of them is one of both; else ``test-share`` of
    each class is for testing. Classes are numbered in the order of their names, or of the lines of
    PATH/classes.txt. Images of several sizes need ``image-size``. Grey ones among colours get three
    equal channels, transparency is dropped, and 16 bits are kept as floats. Folders above the
    classes are the column ``site`` (``partition="column:site"``).
    """

    is_folder: ClassVar[bool | None] = True

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the file of classes, and all folders, which change with their images."""
        root = self.find(location, data_dir)
        folders = [Path(path) for path, _, _ in os.walk(root)]
        return (*filter(Path.is_file, [root / CLASSES]), *folders)

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the folder, each image brought into its shape when it is read."""
        root = self.find(location, data_dir)
        parts = [root / "train", root / "test"]
        given = all(part.is_dir() for part in parts)
        named = _class_order(root)
        paths: list[Path] = []
        counts, lines, problems = [], [], list[str]()
        for part in parts if given else [root]:
            found, others, empty = _pictures_by_class(part)
            problems += [
                f"{folder} has no image; a class has some, or no folder" for folder in empty
            ]
            if others := [path for path in others if path != root / CLASSES]:
                names = few([path.relative_to(root).as_posix() for path in others], SHOWN)
                lines.append(f"{part}: {len(others)} files that are no images ({names})")
            paths += found
            counts.append(len(found))
        if alone := [part for part in parts if part.is_dir() and not given]:
            lines.append(
                f"{alone[0]} is read as any other folder, as not both of train and test are there"
            )
        kinds = np.array([normalize(path.parent.name) for path in paths])
        known = named or tuple(map(str, np.unique(kinds[: counts[0]])))
        number = {name: label for label, name in enumerate(known)}
        for path, kind in zip(paths, kinds, strict=True):
            if kind not in number:
                raise DataError(f"{path.parent}: {unknown_name('class', printable(kind), known)}")
        labels = np.array([number[kind] for kind in kinds], np.int64)
        depths = np.array([len(path.relative_to(root).parts) - given for path in paths])
        sites = np.array([normalize(path.parent.parent.name) for path in paths])
        train, test = np.split(np.arange(len(paths)), counts[:1])
        if not given:
            columns = {SITE: sites} if (depths == 3).all() else {}
            train, test = divide(labels, columns, reading, str(root))
        of_train, of_test = (
            {SITE: sites[part]} if (depths[part] == 3).all() else {} for part in (train, test)
        )
        if of_train and not of_test:
            lines.append(
                f"{parts[1]} names no sites: each client is tested on a share of it with the "
                "mixture of classes that it trains on"
            )
        try:
            images = read_pictures([paths[place] for place in (*train, *test)], reading)
        except DataError as error:
            problems.append(str(error))
        if problems:
            raise DataError("\n".join(problems))
        return Dataset(
            name=f"{self.name}:{location}",
            train_images=images[: train.size],
            train_labels=labels[train],
            test_images=images[train.size :],
            test_labels=labels[test],
            class_names=known,
            numbered_here="" if named else f"classes are numbered by name, without {CLASSES}",
            split_here=not given,
            train_columns=of_train,
            test_columns=of_test,
            said=tuple(lines),
        )


def _pictures_by_class(root: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the images in folders of classes, all of one depth, other files, and empty folders."""
    levels = ["/".join(["[!.]*"] * depth) for depth in (1, 2, 3)]
    found, others = pictures_among(path for level in levels for path in root.glob(level))
    by_depth = {len(path.relative_to(root).parts): path for path in found}
    if not by_depth.keys() - {1}:
        raise DataError(f"{root} has no folders of images; allowed: PATH/CLASS/IMAGE")
    if len(by_depth) > 1:
        shown = " and ".join(path.relative_to(root).as_posix() for path in by_depth.values())
        raise DataError(
            f"{root} has {shown}; all images lie as PATH/CLASS/IMAGE, or all as "
            "PATH/SITE/CLASS/IMAGE, in PATH/train and PATH/test where these are apart"
        )
    full, classes = {path.parent for path in found}, sorted(root.glob(levels[max(by_depth) - 2]))
    return found, others, [each for each in classes if each.is_dir() and each not in full]


def _class_order(root: Path) -> tuple[str, ...]:
    path = root / CLASSES
    if not path.is_file():
        return ()
    try:
        names = tuple(filter(None, map(normalize, read_text(path).splitlines())))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if len(set(names)) < len(names) or not names:
        raise DataError(f"{path} has {'a name twice' if names else 'no names'}; one a line")
    return names
