"""Columns of a table as numbers: standardised ones, and categories as one-hot."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.data.images import Images
from bfl.errors import DataError, nearest, unknown_name
from bfl.texts import few, printable

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MOST_CATEGORIES = 100
"""Most categories of a column; more are rather names than kinds."""

SHOWN = 5
"""Most columns or categories that a message names."""

FEW_ROWS = 10
"""Most rows in which each may have a category of its own."""

_ID = re.compile(r"(?:(?:^|[\W_])(?i:id|index)|[a-z](?:Id|ID|Index))$")
"""Names of columns that number rows, in whatever order."""

_NUMBER_WITH_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")

LEAST_NOISE = 1e-6
"""Least variance of the noise of a number that is predicted, where the number's own is 1."""

GREY = 127.5
"""Place of a column's mean on the scale of pixels, and its standard deviation there."""


@dataclass(frozen=True)
class Column:
    """A column that a network takes.

    Attributes:
        categories: Its categories, in the order of their inputs; empty: it holds numbers.
    """

    name: str
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def of(cls, name: str, numbers: npt.NDArray[np.float64], where: str) -> Column:
        """Return a column of numbers; the deviation of constant ones counts as 1.

        Raises:
            DataError: They are too large to have a deviation.
        """
        with np.errstate(over="ignore"):
            deviation = float(numbers.std())
            if not np.isfinite(deviation):
                raise DataError(
                    f"{where}: column '{name}' holds numbers up to {np.abs(numbers).max():.3g}, "
                    "too large to be standardised; give it another unit"
                )
            # That of one value may be the rounding of its mean.
            deviation *= bool(np.ptp(numbers))
        return cls(name, mean=float(numbers.mean()), deviation=deviation or 1.0)

    @classmethod
    def from_dict(cls, column: Mapping[str, Any]) -> Column:
        """Return the column that JSON has.

        Raises:
            TypeError, KeyError, ValueError: It is something else.
        """
        categories = tuple(map(str, column["categories"]))
        return cls(
            str(column["name"]), categories, float(column["mean"]), float(column["deviation"])
        )

    def encoded(self, values: Series[Any], where: str) -> npt.NDArray[np.float64]:
        """Return (N, 1) standardised numbers, or (N, C) zeros and ones.

        Of a category that is none of its own all are 0.

        Raises:
            DataError: It is no number where there have to be numbers.
        """
        if self.categories:
            return np.asarray(_texts(values)[:, np.newaxis] == np.array(self.categories), float)
        if not _is_numeric(values):
            row, text = _first_text(values)
            raise DataError(
                f"{where}: row {row + 1} (from 1, without the header) of column '{self.name}' "
                f"holds '{text}', and the run takes numbers"
            )
        numbers = values.to_numpy(np.float64)[:, np.newaxis]
        return np.asarray((numbers - self.mean) / self.deviation)


@dataclass(frozen=True)
class Encoding:
    """Encoding of a table's rows as what a network takes.

    Rows are "images" of a height and a channel of 1, on the scale of pixels: numbers with the mean
    127.5 and that standard deviation, which a network takes as 0 and 1.

    Attributes:
        columns: The columns, in their order.
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, rows: DataFrame, where: str) -> Encoding:
        """Return the encoding by the means, deviations and categories of rows.

        The sums that means and deviations are made of add up over clients, so theirs are those of
        all training rows, however these are split.

        Raises:
            DataError: There are no columns, or one can be neither of the two.
        """
        if not len(rows.columns):
            raise DataError(f"{where} has no column besides those that are no inputs")
        return cls(tuple(_column(rows[name], where) for name in rows.columns))

    @property
    def width(self) -> int:
        """The number of inputs."""
        return sum(len(column.categories) or 1 for column in self.columns)

    def encoded(
        self, rows: DataFrame | npt.ArrayLike, where: str = "the table", *, tell: bool = False
    ) -> Images:
        """Return rows as a network takes them, float32 (N, 1, width, 1).

        Args:
            rows: A data frame with the columns, or an array (N, columns) in their order.
            tell: Whether categories that no column has are a warning.

        Raises:
            DataError: A column is missing, or a value.
        """
        import pandas

        names = [column.name for column in self.columns]
        if not isinstance(rows, pandas.DataFrame):
            array = np.asarray(rows)
            if array.ndim != 2 or array.shape[1] != len(names):
                raise DataError(
                    f"{where} has the shape {array.shape}; expected a data frame with the columns "
                    f"{', '.join(names)}, or an array (N, {len(names)}) in this order"
                )
            rows = pandas.DataFrame(array, columns=names).infer_objects()
        rows = rows.rename(columns=str)
        known = list(rows.columns)
        if lacking := [name for name in names if name not in known]:
            others = [name for name in known if name not in names]
            near = {name: nearest(name, others) for name in lacking[:SHOWN]}
            hints = [f"{n!r}" + (f" (did you mean {g!r}?)" if g else "") for n, g in near.items()]
            raise DataError(
                f"{where} has no column {', '.join(hints)}, which the run takes; it has "
                f"{', '.join(known)}"
            )
        rows = rows[names]
        check_complete(rows, where, needed=True)
        if tell and (lines := self._unseen(rows)):
            warnings.warn(f"{where}: {'; '.join(lines)}", stacklevel=3)
        parts = [column.encoded(rows[column.name], where) for column in self.columns]
        values = GREY * (np.concatenate(parts, axis=1) + 1)
        return values.astype(np.float32)[:, np.newaxis, :, np.newaxis]

    def _unseen(self, rows: DataFrame) -> list[str]:
        """Return a line of each column with categories that it has not seen; all are 0."""
        lines = []
        for column in self.columns:
            if not column.categories:
                continue
            counts = Counter(_texts(rows[column.name]).tolist())
            new = [
                f"'{printable(kind)}' in {count} of {len(rows)} rows"
                for kind, count in counts.most_common()
                if kind not in column.categories
            ]
            if new:
                lines.append(
                    f"column '{column.name}' holds {few(new, SHOWN)}, which the run has not seen: "
                    "its inputs are 0 there"
                )
        return lines

    def to_list(self) -> list[dict[str, Any]]:
        """Return the columns as JSON has them."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_list(cls, columns: Sequence[Mapping[str, Any]]) -> Encoding:
        """Return what ``to_list`` gives.

        Raises:
            TypeError, KeyError, ValueError: It is something else.
        """
        return cls(tuple(map(Column.from_dict, columns)))


def said_of_inputs(rows: DataFrame, train: npt.NDArray[np.int64], left_out: Sequence[str]) -> str:
    """Return what is to be said of columns that are an identity or one value; or "".

    Args:
        rows: The inputs, complete, in the order of their file.
        train: The positions of those for training.
        left_out: The columns that are no inputs already.
    """
    found: dict[str, str] = {}
    for name, values in rows.items():
        if values.iloc[train].nunique() == 1:
            found[str(name)] = "has one value"
        if not _is_numeric(values) or str(name) in found:
            continue
        numbers = values.to_numpy(np.float64)
        if len(numbers) > FEW_ROWS and np.array_equal(numbers, np.rint(numbers)):
            by_one = (np.diff(numbers) == 1).all()
            if by_one or (_ID.search(str(name)) and np.unique(numbers).size == numbers.size):
                found[str(name)] = "numbers the rows"
    if not found:
        return ""
    shown = few([f"'{name}' {why}" for name, why in found.items()], SHOWN)
    without = printable(",".join([*left_out, *found]))
    return f'inputs that may say nothing: {shown}; columns-left-out="{without}" drops them'


def said_of_texts(rows: DataFrame) -> list[str]:
    """Return a line of each column of categories that holds mostly numbers.

    Args:
        rows: The inputs, complete.
    """
    import pandas

    lines = []
    for name, values in rows.items():
        if _is_numeric(values) or values.dtype.kind in "mM":
            continue
        numeric = pandas.to_numeric(values, errors="coerce").notna()
        if not numeric.all() and max(numeric.mean(), numeric[~values.duplicated()].mean()) > 0.5:
            row, text = _first_text(values)
            lines.append(
                f"column '{printable(str(name))}' becomes categories: {numeric.sum()} of "
                f"{len(values)} rows hold numbers, and row {row + 1} (from 1, without the header) "
                f"holds '{text}'"
            )
    return lines


def check_columns(names: Sequence[str], rows: DataFrame, where: str) -> None:
    """Refuse names that are those of no column.

    Raises:
        DataError: With the nearest name.
    """
    known = [str(name) for name in rows.columns]
    for name in names:
        if name not in known:
            raise DataError(f"{where}: {unknown_name('column', name, known)}")


def _column(values: Series[Any], where: str) -> Column:
    name = str(values.name)
    if _is_numeric(values):
        return Column.of(name, values.to_numpy(np.float64), where)
    if values.dtype.kind in "mM":
        raise DataError(
            f"{where}: column '{name}' holds dates, which are no inputs; make numbers of them, or "
            "leave it out (columns-left-out)"
        )
    categories = tuple(map(str, np.unique(_texts(values))))
    if all(map(_NUMBER_WITH_COMMA.fullmatch, categories)):
        raise DataError(
            f"{where}: column '{name}' holds '{categories[0]}', a number with a decimal comma; "
            "allowed: a point"
        )
    if len(categories) > MOST_CATEGORIES or len(categories) == len(values) > FEW_ROWS:
        raise DataError(
            f"{where}: column '{name}' has {len(categories)} categories in {len(values)} rows, "
            f"such as '{_first_text(values)[1]}'; at most {MOST_CATEGORIES} are taken, and not one "
            "a row; leave it out (columns-left-out), or store numbers"
        )
    return Column(name, categories)


def _first_text(values: Series[Any]) -> tuple[int, str]:
    """Return the first value that is no number, else the first one, with its position."""
    import pandas

    row = int(pandas.to_numeric(values, errors="coerce").isna().to_numpy().argmax())
    return row, printable(str(values.iloc[row]))


def _is_numeric(values: Series[Any]) -> bool:
    return values.dtype.kind in "biuf"


def _texts(values: Series[Any]) -> npt.NDArray[np.str_]:
    return np.asarray(values.to_numpy(object), str)


def gaps_of(rows: DataFrame) -> dict[str, str]:
    """Return where columns have no value, in words, by name; see ``Dataset.gaps``."""
    return {
        str(name): f"row {gaps.argmax() + 1} (from 1, without the header) is the first of "
        f"{gaps.sum()} of {len(rows)}"
        for name, values in rows.items()
        if (gaps := values.isna().to_numpy()).any()
    }


def check_complete(rows: DataFrame, where: str, target: str = "", *, needed: bool = False) -> None:
    """Refuse rows in which a value is missing, or is no finite number.

    Args:
        rows: All rows, of which the message says how many.
        target: The column that is predicted, and so cannot be left out.
        needed: Whether all columns are taken, so that none can be left out.

    Raises:
        DataError: With the first such row of the first column, counted from 1 without the header,
            and with the number of such cells in each column.
    """
    found: dict[str, int] = {}
    first = ""
    for name, values in rows.items():
        bad = values.isna().to_numpy()
        if _is_numeric(values):
            bad = ~np.isfinite(values.to_numpy(np.float64, na_value=np.nan))
        if not bad.any():
            continue
        row = int(bad.argmax())
        what = f"holds {values.iloc[row]}" if values.notna().iloc[row] else "has no value"
        others = f", as {more} others" if (more := bad.sum() - 1) else ""
        first = first or (
            f"row {row + 1} (from 1, without the header) {what} in column '{name}'"
            f"{', its target' if name == target else ''}{others}"
        )
        found[str(name)] = int(bad.sum())
    if not found:
        return
    if len(found) > 1:
        counts = few([f"'{name}' {count}" for name, count in found.items()], SHOWN)
        first += f"; in all {sum(found.values())} cells: {counts}"
    inputs = 0 if needed else len(found.keys() - {target})
    which = ("column" if inputs == 1 else "columns") + " of inputs" * (inputs < len(found))
    leave_out = f", or the {which} (columns-left-out)" * bool(inputs)
    raise DataError(f"{where}: {first}; leave out such rows{leave_out}")
