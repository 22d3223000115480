"""NumPy archives: ``x_train``, ``y_train``, ``x_test``, ``y_test`` in one ``.npz`` file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from bfl.archives import ALONE, open_arrays
from bfl.data.datasets.base import Dataset, Labels, PathSource, dataset_sources
from bfl.data.datasets.encoding import normalize
from bfl.data.datasets.reading import Reading
from bfl.data.images import WHITE, Array, as_pixels
from bfl.errors import DataError
from bfl.texts import few, printable

CALLED = {
    "train_images": "x_train",
    "train_labels": "y_train",
    "test_images": "x_test",
    "test_labels": "y_test",
}
"""Names of a data set's arrays in an archive."""

NAMES = "class_names"
DARK = 16  # the greatest pixel, of 255, of images that a person is told are dark
_MOST_CHANNELS = 4


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

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the archive."""
        path = self.find(location, data_dir)
        return read_archive(path, f"npz:{location}", pixel_range=reading.pixel_range)


def read_archive(
    path: Path, name: str, class_names: tuple[str, ...] = (), *, pixel_range: str = ""
) -> Dataset:
    """Return the data set in an archive; ``class_names`` are those of a known one."""
    with open_arrays(path) as archive:
        if ALONE in archive:
            raise DataError(f"{path}: not a NumPy archive (.npz): it is a single array")
        if missing := [array for array in CALLED.values() if array not in archive]:
            found = ", ".join(sorted(archive)) or "nothing"
            raise DataError(f"{path}: {', '.join(missing)} missing; the archive holds {found}")
        known = [*CALLED.values(), NAMES]
        wanted = [a for a in archive if a in known or a.endswith(("_train", "_test"))]
        arrays = archive.checked(wanted)
    try:
        dataset = _dataset(path, name, arrays, class_names, pixel_range)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    replace(dataset, name=str(path)).check(CALLED)
    return dataset


def _dataset(
    path: Path, name: str, arrays: dict[str, Array], class_names: tuple[str, ...], pixel_range: str
) -> Dataset:
    names = arrays.pop(NAMES, None)
    given = class_names
    if names is not None:
        if names.ndim != 1 or names.dtype.kind != "U" or not names.size:
            raise DataError(
                f"{NAMES} is of {names.dtype} {names.shape}; allowed: a list of strings"
            )
        given = given or tuple(map(normalize, names))
        if len(set(given)) < len(given):
            raise DataError(f"{NAMES} has a name twice")
    images = {array: arrays.pop(array) for array in ("x_train", "x_test")}
    for array, values in images.items():
        if values.ndim not in (3, 4) or 0 in values.shape:
            empty = "is empty: it " * (0 in values.shape)
            raise DataError(
                f"{array} {empty}has the shape {values.shape}; images are [N, H, W] or [N, H, W, C]"
            )
        _check_channels_last(array, values.shape)
    labels = {array: arrays.pop(array) for array in ("y_train", "y_test")}
    classes = number_classes(labels, given, fixed=bool(class_names))
    pixels = as_pixels(images, pixel_range)
    train, test = (a[..., np.newaxis] if a.ndim == 3 else a for a in pixels.values())
    notes = [f"{path}: {note}" for note in classes.notes]
    greatest = max(float(train.max()), float(test.max()))
    if 0 < greatest <= DARK and not pixel_range:
        notes.append(
            f"{path}: its pixels are up to {greatest:g} of {WHITE}; if {greatest:g} is white, say "
            f'pixel-range="0:{greatest:g}"'
        )
    columns: dict[str, dict[str, Array]] = {"train": {}, "test": {}}
    for array, values in arrays.items():
        column, _, split = array.rpartition("_")
        rows = len(images[f"x_{split}"])
        if values.shape != (rows,):
            raise DataError(
                f"{array} has the shape {values.shape}; expected ({rows},), a value for each "
                "image, such as its site"
            )
        texts = values.dtype.kind == "U"
        columns[split][column] = np.array(list(map(normalize, values))) if texts else values
    return Dataset(
        name=name,
        train_images=train,
        train_labels=classes.labels[0],
        test_images=test,
        test_labels=classes.labels[1],
        class_names=classes.names,
        numbered_here=classes.here,
        said=tuple(notes),
        train_columns=columns["train"],
        test_columns=columns["test"],
    )


def _check_channels_last(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 4:
        return
    channels, height, width = shape[1:]
    # An image that is as wide as it has channels, and less high, is none.
    if channels <= _MOST_CHANNELS < min(height, width) or channels < height == width:
        raise DataError(
            f"{name} has the shape {shape}, which looks like [N, C, H, W]; channels come last: "
            f"{name} = {name}.transpose(0, 2, 3, 1)"
        )


class Classes(NamedTuple):
    """Labels of each split as numbers of classes; ``here`` is how, if by these labels alone."""

    labels: tuple[Labels, ...]
    names: tuple[str, ...] = ()
    here: str = ""
    notes: tuple[str, ...] = ()


def number_classes(
    splits: Mapping[str, Array], names: tuple[str, ...], *, fixed: bool = False
) -> Classes:
    """Return labels as numbers of classes counted from 0, of splits of which training is first.

    Taken are texts, and whole numbers of any type. Texts are numbered in the order of ``names``,
    else in their own; numbers that count from 1 lose 1, unless their beginning is ``fixed``.
    """
    flat = {name: _flatten(name, labels) for name, labels in splits.items()}
    texts = [name for name, labels in flat.items() if labels.dtype.kind == "U"]
    if not texts:
        return _from_zero({n: labels.astype(np.int64) for n, labels in flat.items()}, names, fixed)
    if len(texts) < len(flat):
        raise DataError(f"{texts[0]} holds texts, and the labels of the other split are numbers")
    train, *_ = flat
    found, notes = {}, []
    for name, labels in flat.items():
        given, positions = np.unique(labels, return_inverse=True)
        found[name] = np.array([normalize(text) for text in given])[positions]
        if changed := int(np.count_nonzero(found[name] != labels)):
            notes.append(
                f"{name}: {changed} labels lose spaces or marks around them, or are composed (NFC)"
            )
    known = names or tuple(map(str, np.unique(found[train])))
    number = {text: label for label, text in enumerate(known) if text}
    for name, labels in found.items():
        if (unknown := ~np.isin(labels, list(number))).any():
            place = int(unknown.argmax())
            text = printable(labels[place])
            problem = f"'{text}', which is no class of {NAMES if names else train}: {few(known)}"
            empty = "empty; an example without a label has to be left out"
            raise DataError(f"{name}[{place}] is {problem if text else empty}")
    numbers = tuple(np.array([number[text] for text in of], np.int64) for of in found.values())
    here = "" if names else f"{train} holds texts, numbered in their order: {few(known)}"
    return Classes(numbers, known, here, tuple(notes))


def _flatten(name: str, labels: Array) -> Array:
    """Return labels [N]: texts, or whole numbers that int64 holds."""
    if labels.dtype.kind == "S":
        try:
            labels = np.asarray(np.char.decode(labels, "utf-8"))
        except UnicodeDecodeError as error:
            raise DataError(f"{name} holds bytes that are not UTF-8: {error}") from error
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind not in "biufU" or labels.ndim != 1 or labels.size == 0:
        raise DataError(
            f"{name} has the type {labels.dtype} and the shape {labels.shape}; allowed: integers "
            "from 0 or texts, [N] or [N, 1], N >= 1"
        )
    if labels.dtype.kind != "U":
        whole = np.isfinite(labels) & (labels == np.rint(labels)) & (np.abs(labels) < 2.0**63)
        if not whole.all():
            place = int((~whole).argmax())
            raise DataError(
                f"{name}[{place}] is {labels[place]}, of the type {labels.dtype}; labels are "
                "integers counted from 0; an example without one has to be left out"
            )
    return labels


def _from_zero(splits: Mapping[str, Labels], names: tuple[str, ...], fixed: bool) -> Classes:
    train, *others = splits
    present = np.unique(splits[train])
    lowest, highest = int(present[0]), int(present[-1])
    # With more names than classes seen, the first may have no example.
    if lowest <= 0 or (names and highest < len(names) and not fixed):
        # Some classes may lack an example, but not most: a stray label would make a class of every
        # number below it.
        if not names and highest + 1 > 2 * present.size:
            raise DataError(
                f"{train}[{splits[train].argmax()}] is the label {highest}, which makes "
                f"{highest + 1} classes, and only {present.size} have an example; allowed: classes "
                f"numbered from 0, or an array {NAMES} that names all of them"
            )
        return Classes(tuple(splits.values()), names or tuple(map(str, range(highest + 1))))
    others_fit = all(splits[name].min() >= 1 and splits[name].max() <= highest for name in others)
    if lowest == 1 and 1 < present.size == highest and others_fit and not fixed:
        here = f"{train} counts classes from 1: the labels 1 to {highest} are taken less 1"
        shifted = tuple(labels - 1 for labels in splits.values())
        return Classes(shifted, names or tuple(map(str, present)), here)
    raise DataError(
        f"{train} begins at the label {lowest} and ends at {highest}, of which {present.size} have "
        "an example; labels count from 0 (numpy.unique with return_inverse makes such)"
    )
