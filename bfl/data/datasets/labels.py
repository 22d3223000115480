"""Labels of any type as the numbers of classes, where it is clear which class is which."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.errors import DataError
from bfl.texts import few, printable

Array = npt.NDArray[Any]
Names = tuple[str, ...]

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_MOST = np.iinfo(np.int64).max
_NUMBERED = "names, y = np.unique(np.concatenate([y_train, y_test]), return_inverse=True)"


@dataclass(frozen=True)
class Classes:
    """Labels as numbers of classes.

    Attributes:
        labels: int64 [N] of each split.
        here: What is to be said where the classes were numbered by these labels alone: other data
            of the same classes may number them otherwise.
    """

    labels: tuple[npt.NDArray[np.int64], ...]
    names: Names = ()
    here: str = ""


def numbered_classes(splits: Mapping[str, Array], names: Names, *, fixed: bool = False) -> Classes:
    """Return labels as numbers of classes counted from 0.

    Taken are whole numbers of any type, rows with a single 1 (one-hot), and texts. Texts are
    numbered in the order of ``names``, else in their own; numbers that count from 1 lose 1.

    Args:
        splits: The labels for training, then those for testing, by their names for messages.
        names: The classes' names, in the order of the numbers; empty: not known.
        fixed: Whether labels have to count from 0, as the classes of a known data set do.

    Raises:
        DataError: It is not clear which class is which; the message has the line that mends it.
    """
    found = {name: _flat(name, labels) for name, labels in splits.items()}
    columns = {len(row) for row in (_one_hot(n, a) for n, a in found.items()) if row is not None}
    if len(columns) > 1:
        raise DataError(f"{' and '.join(found)} are one-hot with {sorted(columns)} classes")
    if columns and not names:
        names = tuple(map(str, range(columns.pop())))
    flat = {
        name: labels.argmax(axis=1) if labels.ndim == 2 else labels
        for name, labels in found.items()
    }
    texts = [name for name, labels in flat.items() if labels.dtype.kind == "U"]
    for name in texts:
        if not (empty := np.char.strip(flat[name]) == "").any():
            continue
        raise DataError(
            f"{name}[{int(empty.argmax())}] is empty; an example without a label has to be left out"
        )
    if texts and len(texts) < len(flat):
        raise DataError(
            f"{texts[0]} holds texts and {next(n for n in flat if n not in texts)} numbers; "
            "labels of both splits are of one kind"
        )
    if texts and not all(_NUMBER.fullmatch(text) for a in flat.values() for text in np.unique(a)):
        return _of_texts(flat, names)
    if texts:
        _check_spelling(flat)
    whole = {name: _whole(name, labels) for name, labels in flat.items()}
    return _from_zero(whole, names, fixed or bool(columns))


def _flat(name: str, labels: Array) -> Array:
    """Return labels [N], or [N, C] if they may be one-hot; texts as such."""
    if labels.dtype.kind == "S":
        try:
            labels = np.asarray(np.char.decode(labels, "utf-8"))
        except UnicodeDecodeError as error:
            raise DataError(f"{name} holds bytes that are not UTF-8: {error}") from error
    if labels.dtype.kind not in "biufU":
        raise DataError(
            f"{name} has the type {labels.dtype}; labels are integers counted from 0: "
            f"{name}.astype(int), or {name}.astype(str)"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 and not (labels.ndim == 2 and labels.dtype.kind != "U"):
        raise DataError(f"{name} has the shape {labels.shape}; labels are [N] or [N, 1]")
    if labels.size == 0:
        raise DataError(f"{name} is empty")
    return labels


def _one_hot(name: str, labels: Array) -> Array | None:
    """Return a row of one-hot labels; None where they are no rows."""
    if labels.ndim == 1:
        return None
    bad = np.flatnonzero(((labels != 0).sum(axis=1) != 1) | (labels.max(axis=1) != 1))
    if bad.size:
        raise DataError(
            f"{name} has the shape {labels.shape}, and row {bad[0]} has not a single 1 among "
            f"zeros; labels are one class each: {name} = {name}.argmax(axis=1), if the greatest is "
            "the class"
        )
    return np.asarray(labels[0])


def _of_texts(splits: Mapping[str, Array], names: Names) -> Classes:
    known, here = names, ""
    train, *_ = splits
    if not names:
        known = tuple(map(str, np.unique(splits[train])))
        here = f"{train} holds texts, numbered in their order: {few(known)}"
    order = np.argsort(np.array(known))
    ordered = np.array(known)[order]
    for name, labels in splits.items():
        unknown = np.flatnonzero(~np.isin(labels, ordered))
        if unknown.size:
            raise DataError(
                f"{name}[{unknown[0]}] is '{printable(labels[unknown[0]])}', which is no class of "
                f"{'class_names' if names else train}: {few(known)}"
            )
    numbers = tuple(order[np.searchsorted(ordered, a)].astype(np.int64) for a in splits.values())
    return Classes(numbers, known, here)


def _check_spelling(splits: Mapping[str, Array]) -> None:
    """Refuse texts that are one number and may be two classes."""
    spelled: dict[int, str] = {}
    for text in np.unique(np.concatenate(list(splits.values()))):
        if (other := spelled.setdefault(int(text), text)) != text:
            raise DataError(
                f"{' and '.join(splits)} hold the texts '{other}' and '{text}', which are one "
                "number; if they are one class, write it in one way, and else name the classes by "
                "texts that are no numbers"
            )


def _whole(name: str, labels: Array) -> npt.NDArray[np.int64]:
    if labels.dtype.kind == "U":
        labels = np.array([int(text) for text in labels], object)
    elif labels.dtype.kind == "f":
        bad = np.flatnonzero(~(np.isfinite(labels) & (labels == np.rint(labels))))
        if bad.size:
            raise DataError(
                f"{name}[{bad[0]}] is {labels[bad[0]]}, of the type {labels.dtype}; labels are "
                "integers counted from 0; an example without one has to be left out"
            )
    for extreme in (labels.max(), labels.min()):
        if abs(int(extreme)) > _MOST:
            raise DataError(f"{name} holds the label {extreme}")
    return labels.astype(np.int64)


def _from_zero(splits: Mapping[str, npt.NDArray[np.int64]], names: Names, fixed: bool) -> Classes:
    train, *others = splits
    present = np.unique(splits[train])
    lowest, highest = int(present[0]), int(present[-1])
    # With more names than classes seen, the first may have no example.
    if lowest <= 0 or fixed or (names and highest < len(names)):
        if fixed and lowest > 0:
            raise DataError(f"{train} begins at the label {lowest}; labels count from 0")
        return Classes(tuple(splits.values()), names or _counted(train, splits[train]))
    rest = [int(bound(splits[name])) for name in others for bound in (np.min, np.max)]
    from_one = lowest == 1 and present.size == highest and present.size > 1
    if from_one and not (rest and (min(rest) < 1 or max(rest) > highest)):
        here = f"{train} counts classes from 1: the labels 1 to {highest} are taken less 1"
        shifted = tuple(labels - 1 for labels in splits.values())
        return Classes(shifted, names or tuple(map(str, present)), here)
    beside = f", and {', '.join(others)} holds {min(rest)} to {max(rest)}" if rest else ""
    raise DataError(
        f"{train} begins at the label {lowest} and ends at {highest}, of which {present.size} have "
        f"an example{beside}; labels count from 0: {_NUMBERED}, and then "
        "y_train, y_test = np.split(y, [len(y_train)])"
    )


def _counted(name: str, labels: npt.NDArray[np.int64]) -> Names:
    highest, present = int(labels.max()), np.unique(labels).size
    # Some classes may lack an example, but not most: a stray label would make a class of every
    # number below it.
    if highest + 1 > 2 * present:
        where = int(np.argmax(labels))
        raise DataError(
            f"{name}[{where}] is the label {highest}, which makes {highest + 1} classes, and only "
            f"{present} have an example; correct the label, number the classes from 0, or name all "
            "of them in an array class_names"
        )
    return tuple(str(label) for label in range(highest + 1))
