"""Answers that stand in a column of a table: classes, or numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.base import Labels
from bfl.data.datasets.encoding import MOST_CATEGORIES, check_columns, check_complete
from bfl.data.datasets.labels import numbered_classes
from bfl.data.datasets.reading import TARGET, Reading
from bfl.data.partitions.base import Columns
from bfl.errors import DataError
from bfl.texts import printable

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TARGETS = ("target", "label", "class", "y")
"""Usual names of the column of classes, in the order of preference."""

HALVES = ("at most the median", "above the median")
"""Classes of a table whose target is a number, for what goes by labels, such as partitions."""


class Answers(NamedTuple):
    """A table's target: labels (N,), numbers that are predicted, and names of classes.

    ``here`` is what is to be said of the labels' numbers.
    """

    labels: Labels
    true: npt.NDArray[Any] | None
    names: tuple[str, ...]
    here: str = ""

    def part(self, positions: Labels) -> Answers:
        """Return those of some rows."""
        true = None if self.true is None else self.true[positions]
        return self._replace(labels=self.labels[positions], true=true)


def target_column(path: Path | str, rows: DataFrame, reading: Reading) -> str:
    """Return the name of the column that is predicted.

    Raises:
        DataError: There is no such column.
    """
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
    """Return the answers of a table's rows.

    Args:
        column: The column that is predicted, its rows numbered from 0.
        task: The key ``task``.
        names: The classes, if they are known.

    Raises:
        DataError: A value is missing, or is none of the task's.
    """
    import pandas

    check_complete(column.to_frame(), str(path), str(column.name))
    values = column.to_numpy()
    if task == "regression":
        if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            parsed = pandas.to_numeric(column, errors="coerce").to_numpy(np.float64)
            row = int((~np.isfinite(parsed)).argmax())
            words = ', or task="classification"' * (not np.isfinite(parsed).any())
            raise DataError(
                f"{path}: row {row + 1} (from 1, without the header) of column '{column.name}' "
                f"holds '{printable(str(values[row]))}', and is to be predicted as a number "
                f"(task); allowed: finite numbers{words}"
            )
        numbers = np.asarray(values, np.float64)
        return Answers((numbers > np.median(numbers)).astype(np.int64), numbers, HALVES)
    if values.dtype.kind == "f" and (broken := values != np.rint(values)).any():
        row = int(broken.argmax())
        raise DataError(
            f"{path}: row {row + 1} of column '{column.name}' holds {values[row]:g}, which is no "
            'class; allowed: words or whole numbers, or task="regression" to predict numbers'
        )
    try:
        if values.dtype.kind in "iu":
            return _whole_numbers(column, names)
        texts = values.astype(str) if values.dtype.kind == "O" else values
        classes = numbered_classes({f"column '{column.name}'": texts}, names)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return Answers(classes.labels[0], None, classes.names, classes.here)


def _whole_numbers(column: Series[Any], names: tuple[str, ...]) -> Answers:
    """Return the labels of classes that are whole numbers, by their order."""
    import pandas

    present = tuple(map(str, np.unique(column)))
    known = names or present
    if strangers := sorted(set(present) - set(known)):
        raise DataError(
            f"column '{column.name}' holds the class {strangers[0]}; allowed: {', '.join(known)}"
        )
    if len(known) > MOST_CATEGORIES:
        raise DataError(
            f"column '{column.name}' has {len(known)} classes, and at most {MOST_CATEGORIES} are "
            'taken; numbers are predicted with task="regression"'
        )
    codes = pandas.Categorical(column.astype(str), categories=list(known)).codes
    return Answers(codes.astype(np.int64), None, known)


def columns_of(rows: DataFrame) -> Columns:
    """Return all columns as arrays, those of anything but numbers as texts; "" is no value."""
    arrays = {name: rows[name].to_numpy() for name in rows.columns}
    return {
        n: a if a.dtype.kind in "biuf" else np.where(rows[n].isna(), "", a.astype(str))
        for n, a in arrays.items()
    }
