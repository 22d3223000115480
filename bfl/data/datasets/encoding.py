"""Columns of a table as inputs of a network, by sums over rows that add up over clients."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.columns import (
    SHOWN,
    check_complete,
    check_has,
    is_numeric,
    texts_of,
    typed_column,
)
from bfl.data.images import Images
from bfl.errors import DataError
from bfl.texts import few, printable

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MOST_CATEGORIES = 100
"""Most categories of a column; more are rather names than kinds."""

FEW_ROWS = 10
"""Most rows in which each may have a category of its own."""

FAR = 6.0
"""Deviations from the mean beyond which a number is unlike the training rows'."""

REFUSE, MEAN, INDICATOR = "refuse", "mean", "indicator"
"""Values of the key ``missing``."""

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
        lowest: Least number of the training rows; None: not known, or it has categories.
        frequent: The category that a missing value counts as.
        missing: What is done with missing values: they are refused; or they count as the mean or
            the most frequent category; or the column has an input more as well, 1 where its value
            is missing.
    """

    name: str
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    lowest: float | None = None
    highest: float | None = None
    frequent: str = ""
    missing: str = REFUSE

    @classmethod
    def of(cls, name: str, numbers: npt.NDArray[np.float64], where: str) -> Column:
        """Return a column of numbers; the deviation of constant ones counts as 1.

        Raises:
            DataError: They are too large to have a deviation.
        """
        return ColumnSums.of_numbers(name, numbers).column(where)

    @classmethod
    def from_dict(cls, column: Mapping[str, Any]) -> Column:
        """Return the column that JSON has.

        Raises:
            TypeError, KeyError, ValueError: It is something else.
        """
        bounds = {
            end: None if (value := column.get(end)) is None else float(value)
            for end in ("lowest", "highest")
        }
        return cls(
            str(column["name"]),
            tuple(map(str, column["categories"])),
            float(column["mean"]),
            float(column["deviation"]),
            frequent=str(column.get("frequent", "")),
            missing=str(column.get("missing", REFUSE)),
            **bounds,
        )

    @property
    def width(self) -> int:
        """The number of its inputs."""
        return (len(self.categories) or 1) + (self.missing == INDICATOR)

    def encoded(self, values: Series[Any], where: str) -> npt.NDArray[np.float64]:
        """Return (N, width) standardised numbers, or zeros and ones.

        Of a category that is none of its own all are 0.

        Raises:
            DataError: It is no number where there have to be numbers, or is infinite or missing.
        """
        if self.categories:
            texts = texts_of(values)
            absent = np.array([text is None for text in texts])
            texts = np.where(absent, self.frequent, texts)
            own = np.asarray(texts[:, np.newaxis] == np.array(self.categories, object), np.float64)
        else:
            numbers = self._numbers(values, where).to_numpy(np.float64)
            absent = np.isnan(numbers)
            numbers = np.where(absent, self.mean, numbers)[:, np.newaxis]
            own = (numbers - self.mean) / self.deviation
        if self.missing == INDICATOR:
            return np.column_stack([own, absent])
        return own

    def warnings(self, values: Series[Any], where: str) -> list[str]:
        """Return for each of N values how it is unlike the training rows; or ""."""
        if self.categories:
            return [
                f"{self.name} has no value"
                if text is None
                else f"{self.name} '{printable(text)}' is unseen"
                if text not in self.categories
                else ""
                for text in texts_of(values)
            ]
        if self.lowest is None or self.highest is None:
            low, high = (self.mean + sign * FAR * self.deviation for sign in (-1, 1))
            what = f"{FAR:g} deviations from the mean"
        else:
            low, high, what = self.lowest, self.highest, "the training range"
        return [
            f"{self.name} has no value"
            if np.isnan(number)
            else f"{self.name} {number:g} is outside {what}, {low:g} to {high:g}"
            if not low <= number <= high
            else ""
            for number in self._numbers(values, where).to_numpy(np.float64)
        ]

    def _numbers(self, values: Series[Any], where: str) -> Series[Any]:
        typed = typed_column(values, where).values
        if not is_numeric(typed):
            row, text = first_text(typed)
            raise DataError(
                f"{where}: row {row + 1} (from 1, without the header) of column '{self.name}' "
                f"holds '{text}', and the run takes numbers"
            )
        return typed


@dataclass(frozen=True)
class ColumnSums:
    """Sums over the rows of a column, which add up over clients.

    Attributes:
        rows: The number of rows N, with a value or without.
        known: The number of rows with a value.
        around: The number c that the sums of numbers are taken around, the same in all that are
            added.
        total: Σ (x − c) over the numbers.
        squares: Σ (x − c)² over the numbers.
        counts: The number of rows of each category; None: the column holds numbers.
        lowest: The least number; None: it is not told, as a sum does not say it.
    """

    name: str
    rows: int
    known: int
    around: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    counts: Mapping[str, int] | None = None
    lowest: float | None = None
    highest: float | None = None

    @classmethod
    def of_numbers(
        cls, name: str, numbers: npt.NDArray[np.float64], around: float | None = None
    ) -> ColumnSums:
        """Return the sums over numbers, NaN where a value is missing.

        Args:
            around: The number c; None: their mean, which leaves no rounding, and their ends as
                well.
        """
        known = numbers[~np.isnan(numbers)]
        ends: tuple[float | None, float | None] = (None, None)
        if around is None:
            ends = (float(known.min()), float(known.max())) if known.size else ends
        with np.errstate(over="ignore", invalid="ignore"):
            if around is None:
                around = float(known.mean()) if known.size else 0.0
            apart = known - around
            total, squares = float(apart.sum()), float((apart**2).sum())
        return cls(name, numbers.size, known.size, around, total, squares, None, *ends)

    def add(self, other: ColumnSums) -> ColumnSums:
        """Return the sums over the rows of both.

        Raises:
            DataError: One holds numbers and the other texts, or they are other columns'.
        """
        mine, theirs = (sums.counts is not None for sums in (self, other))
        if (self.name, self.around) != (other.name, other.around) or (
            mine != theirs and self.known and other.known
        ):
            raise DataError(
                f"column '{self.name}' holds {'texts' if mine else 'numbers'} here and column "
                f"'{other.name}' {'texts' if theirs else 'numbers'} there; allowed: one kind in "
                "all tables"
            )
        counts = (
            dict(Counter(self.counts or {}) + Counter(other.counts or {}))
            if mine or theirs
            else None
        )
        return ColumnSums(
            self.name,
            self.rows + other.rows,
            self.known + other.known,
            self.around,
            self.total + other.total,
            self.squares + other.squares,
            counts,
            None if self.lowest is None or other.lowest is None else min(self.lowest, other.lowest),
            None
            if self.highest is None or other.highest is None
            else max(self.highest, other.highest),
        )

    def column(self, where: str, missing: str = REFUSE) -> Column:
        """Return the column by its sums; the deviation of constant numbers counts as 1.

        Args:
            missing: The key ``missing``.

        Raises:
            DataError: It has no value at all; or numbers too large to be standardised, or
                categories that rather are names.
        """
        kept = MEAN if missing == INDICATOR and self.known == self.rows else missing
        if not self.known:
            raise DataError(
                f"{where}: column '{self.name}' has no value in any row; leave it out "
                "(columns-left-out)"
            )
        if self.counts is not None:
            ordered = tuple(sorted(self.counts))
            check_categories(self.name, ordered, self.rows, where)
            frequent = max(ordered, key=self.counts.__getitem__)
            return Column(self.name, ordered, frequent=frequent, missing=kept)
        apart = self.total / self.known
        with np.errstate(over="ignore", invalid="ignore"):
            variance = max(self.squares / self.known - apart**2, 0.0)
        if not np.isfinite(variance):
            raise DataError(
                f"{where}: column '{self.name}' holds numbers too large to be standardised; give "
                "it another unit"
            )
        mean, deviation = self.around + apart, float(np.sqrt(variance))
        # Of one value, up to the rounding of sums that are taken far from it.
        constant = (
            self.lowest == self.highest
            if self.lowest is not None
            else (variance <= 16 * np.finfo(float).eps * apart**2)
        )
        return Column(
            self.name,
            mean=mean,
            deviation=1.0 if constant or not deviation else deviation,
            lowest=self.lowest,
            highest=self.highest,
            missing=kept,
        )


def table_sums(rows: DataFrame, *, around: float | None = None) -> tuple[ColumnSums, ...]:
    """Return the sums over typed rows, one for each column.

    Args:
        around: As for ``ColumnSums.of_numbers``; a number where sums of several tables are added.

    Raises:
        DataError: A column holds dates.
    """
    found = []
    for name, values in rows.items():
        if values.dtype.kind in "mM":
            raise DataError(
                f"column '{name}' holds dates, which are no inputs; make numbers of them, or leave "
                "it out (columns-left-out)"
            )
        if is_numeric(values):
            numbers = values.to_numpy(np.float64)
            found.append(ColumnSums.of_numbers(str(name), numbers, around))
        else:
            counts = Counter(text for text in values if text is not None)
            known = counts.total()
            found.append(ColumnSums(str(name), len(values), known, around or 0.0, counts=counts))
    return tuple(found)


def add(one: Sequence[ColumnSums], other: Sequence[ColumnSums]) -> tuple[ColumnSums, ...]:
    """Return the sums over the rows of two tables with the same columns.

    Raises:
        DataError: They have other columns, or a column of another kind.
    """
    if [sums.name for sums in one] != [sums.name for sums in other]:
        raise DataError(
            f"one table has the columns {', '.join(s.name for s in one)}, and another one "
            f"{', '.join(s.name for s in other)}; allowed: the same ones in all tables"
        )
    return tuple(a.add(b) for a, b in zip(one, other, strict=True))


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
    def of(cls, rows: DataFrame, where: str, missing: str = REFUSE) -> Encoding:
        """Return the encoding by the means, deviations and categories of typed training rows.

        Raises:
            DataError: There are no columns, or one can be neither of the two.
        """
        if not len(rows.columns):
            raise DataError(f"{where} has no column besides those that are no inputs")
        try:
            return cls.finish(table_sums(rows), where, missing)
        except DataError as error:
            text = str(error)
            raise DataError(text if text.startswith(where) else f"{where}: {text}") from error

    @classmethod
    def finish(cls, sums: Sequence[ColumnSums], where: str, missing: str = REFUSE) -> Encoding:
        """Return the encoding by sums over all rows, of however many tables.

        Raises:
            DataError: As for ``ColumnSums.column``.
        """
        return cls(tuple(each.column(where, missing) for each in sums))

    @property
    def width(self) -> int:
        """The number of inputs."""
        return sum(column.width for column in self.columns)

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
        own = self._own(rows, where)
        if tell and (lines := self.unseen(own)):
            warnings.warn(f"{where}: {'; '.join(lines)}", stacklevel=3)
        parts = [column.encoded(own[column.name], where) for column in self.columns]
        values = GREY * (np.concatenate(parts, axis=1) + 1)
        return values.astype(np.float32)[:, np.newaxis, :, np.newaxis]

    def row_warnings(
        self, rows: DataFrame | npt.ArrayLike, where: str = "the table"
    ) -> list[tuple[str, ...]]:
        """Return for each of N rows how its values are unlike the training rows; mostly nothing.

        Each warning begins with the column: a number outside the training range (or, where that
        is not known, beyond 6 deviations of the mean), an unseen category, or no value.

        Raises:
            DataError: As for ``encoded``.
        """
        own = self._own(rows, where)
        found = [column.warnings(own[column.name], where) for column in self.columns]
        return [tuple(filter(None, of_row)) for of_row in zip(*found, strict=True)]

    def _own(self, rows: DataFrame | npt.ArrayLike, where: str) -> DataFrame:
        """Return the run's columns of rows, none with a value missing that cannot be filled."""
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
        check_has(names, list(rows.columns), where)
        own = pandas.DataFrame(
            {
                column.name: pandas.Series(
                    texts_of(rows[column.name]), rows.index, object, column.name
                )
                if column.categories
                else typed_column(rows[column.name], where).values
                for column in self.columns
            }
        )
        filled = all(column.missing != REFUSE for column in self.columns)
        check_complete(own, where, fixed=True, filled=filled)
        return own

    def unseen(self, rows: DataFrame) -> list[str]:
        """Return a line of each column with categories that it has not seen; all are 0."""
        lines = []
        for column in self.columns:
            if not column.categories:
                continue
            counts = Counter(text for text in texts_of(rows[column.name]) if text is not None)
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


def check_categories(name: str, categories: Sequence[str], rows: int, where: str) -> None:
    """Refuse categories that are numbers with a comma, or rather names than kinds.

    Raises:
        DataError: With the first category.
    """
    if all(map(_NUMBER_WITH_COMMA.fullmatch, categories)):
        raise DataError(
            f"{where}: column '{name}' holds '{categories[0]}', a number with a decimal comma; "
            "allowed: a point"
        )
    if len(categories) > MOST_CATEGORIES or len(categories) == rows > FEW_ROWS:
        raise DataError(
            f"{where}: column '{name}' has {len(categories)} categories in {rows} rows, "
            f"such as '{_strangest(categories)}'; at most {MOST_CATEGORIES} are taken, and not one "
            "a row; leave it out (columns-left-out), or store numbers"
        )


def _strangest(categories: Sequence[str]) -> str:
    import pandas

    return first_text(pandas.Series(categories, dtype=object))[1]


def first_text(values: Series[Any]) -> tuple[int, str]:
    """Return the first value that is no number, else the first one, with its position."""
    import pandas

    row = int(pandas.to_numeric(values, errors="coerce").isna().to_numpy().argmax())
    return row, printable(str(values.iloc[row]))
