"""Labels of arrays as the numbers of classes, where it is clear which class is which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.columns import normalize
from bfl.errors import DataError
from bfl.texts import few, printable

Array = npt.NDArray[Any]
Names = tuple[str, ...]


class Classes(NamedTuple):
    """Labels as numbers of classes.

    Attributes:
        labels: int64 [N] of each split.
        here: How they were numbered, where that depends on these labels alone.
        notes: What is to be said of how they were read.
    """

    labels: tuple[npt.NDArray[np.int64], ...]
    names: Names = ()
    here: str = ""
    notes: tuple[str, ...] = ()


def number_classes(splits: Mapping[str, Array], names: Names, *, fixed: bool = False) -> Classes:
    """Return labels as numbers of classes counted from 0.

    Taken are texts, and whole numbers of any type. Texts are numbered in the order of ``names``,
    else in their own; numbers that count from 1 lose 1.

    Args:
        splits: The labels for training, then those for testing, by their names for messages.
        names: The classes' names, in the order of the numbers; empty: not known.
        fixed: Whether labels have to count from 0, as the classes of a known data set do.
    """
    import pandas

    flat = {name: _flatten(name, labels) for name, labels in splits.items()}
    texts = [name for name, labels in flat.items() if labels.dtype.kind == "U"]
    if not texts:
        return _from_zero({n: labels.astype(np.int64) for n, labels in flat.items()}, names, fixed)
    if len(texts) < len(flat):
        raise DataError(
            f"{texts[0]} holds texts and {next(n for n in flat if n not in texts)} numbers; "
            "labels of both splits are of one kind"
        )
    train, *_ = flat
    found, notes = {}, []
    for name, labels in flat.items():
        given, positions = np.unique(labels, return_inverse=True)
        found[name] = np.array([normalize(text) for text in given])[positions]
        if (empty := found[name] == "").any():
            raise DataError(
                f"{name}[{int(empty.argmax())}] is empty; an example without a label has to be "
                "left out"
            )
        if changed := int(np.count_nonzero(found[name] != labels)):
            notes.append(
                f"{name}: {changed} labels lose spaces or marks around them, or are composed (NFC)"
            )
    known = names or tuple(map(str, np.unique(found[train])))
    here = "" if names else f"{train} holds texts, numbered in their order: {few(known)}"
    index = pandas.Index(known)
    numbers = {name: index.get_indexer(labels).astype(np.int64) for name, labels in found.items()}
    for name, labels in found.items():
        if (unknown := numbers[name] < 0).any():
            place = int(unknown.argmax())
            raise DataError(
                f"{name}[{place}] is '{printable(labels[place])}', which is no class of "
                f"{'class_names' if names else train}: {few(known)}"
            )
    return Classes(tuple(numbers.values()), known, here, tuple(notes))


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


def _from_zero(splits: Mapping[str, npt.NDArray[np.int64]], names: Names, fixed: bool) -> Classes:
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
                "numbered from 0, or an array class_names that names all of them"
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
