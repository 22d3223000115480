"""Answers that stand in a column of a table: classes, or numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.base import Labels
from bfl.data.datasets.columns import check_columns, check_complete, is_numeric, type_column
from bfl.data.datasets.encoding import MOST_CATEGORIES
from bfl.data.datasets.reading import TARGET, Reading
from bfl.errors import DataError
from bfl.texts import few, printable

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TARGETS = ("target", "label", "class", "y")
"""Usual names of the column of classes, in the order of preference."""

HALVES = ("at most the median", "above the median")
"""Classes of a table whose target is a number, for what goes by labels, such as partitions."""


class Answers(NamedTuple):
    """A table's target.

    Attributes:
        labels: The classes (N,).
        true: The numbers that are predicted (N,); None: classes are.
        names: The classes' names.
        here: What is to be said of the labels' numbers.
        notes: What is to be said of how the column was read.
    """

    labels: Labels
    true: npt.NDArray[Any] | None
    names: tuple[str, ...]
    here: str = ""
    notes: tuple[str, ...] = ()

    def part(self, positions: Labels) -> Answers:
        """Return those of some rows."""
        true = None if self.true is None else self.true[positions]
        return self._replace(labels=self.labels[positions], true=true)


def target_column(path: Path | str, rows: DataFrame, reading: Reading) -> str:
    """Return the name of the column that is predicted."""
    if reading.target:
        check_columns([reading.target], rows, f"{path} ({TARGET})")
        return reading.target
    for name in TARGETS:
        if name in rows.columns:
            return name
    raise DataError(
        f"{path} has no column {' or '.join(TARGETS)}; say which has the answers in the key "
        f"{TARGET}: {', '.join(rows.columns)}"
    )


def answers_of(path: Path | str, column: Series[Any], task: str, names: tuple[str, ...]) -> Answers:
    """Return the answers of rows numbered from 0: classes are numbered in the order of their names.

    Args:
        task: The key ``task``.
        names: The classes, if they are known.
    """
    values, notes = type_column(column, str(path))
    check_complete(values.to_frame(), str(path), str(column.name))
    notes = tuple(f"{path}: {note}" for note in notes)
    if task == "regression":
        numbers = _numbers(path, values)
        labels = (numbers > np.median(numbers)).astype(np.int64)
        return Answers(labels, numbers, HALVES, notes=notes)
    given = values.to_numpy()
    if given.dtype.kind == "f":
        if (broken := given != np.rint(given)).any():
            row = int(broken.argmax())
            raise DataError(
                f"{path}: row {row + 1} of column '{column.name}' holds {given[row]:g}; allowed: "
                'classes, words or whole numbers, or task="regression" to predict numbers'
            )
        given = given.astype(np.int64)
    if given.dtype.kind not in "biu":
        given = given.astype(str)
    present, positions = np.unique(given, return_inverse=True)
    own = list(map(str, present))
    known = names or tuple(own)
    if strangers := [name for name in own if name not in known]:
        raise DataError(
            f"{path}: column '{column.name}' holds the class '{printable(strangers[0])}'; allowed: "
            f"{few(known)}"
        )
    if len(known) > MOST_CATEGORIES and is_numeric(values):
        raise DataError(
            f"{path}: column '{column.name}' has {len(known)} classes, and at most "
            f'{MOST_CATEGORIES} are taken of numbers, which task="regression" predicts'
        )
    labels = np.array([known.index(name) for name in own], np.int64)[positions]
    here = f"column '{column.name}' holds texts, numbered in their order: {few(known)}"
    return Answers(labels, None, known, "" if names or is_numeric(values) else here, notes)


def _numbers(path: Path | str, values: Series[Any]) -> npt.NDArray[np.float64]:
    import pandas

    if is_numeric(values):
        return np.asarray(values, np.float64)
    parsed = pandas.to_numeric(values, errors="coerce").to_numpy(np.float64)
    row = int(np.isnan(parsed).argmax())
    words = ', or task="classification"' * bool(np.isnan(parsed).all())
    raise DataError(
        f"{path}: row {row + 1} (from 1, without the header) of column '{values.name}' holds "
        f"'{printable(str(values.iloc[row]))}', and is to be predicted as a number (task); "
        f"allowed: finite numbers{words}"
    )
