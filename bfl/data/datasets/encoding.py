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
import pydantic

from bfl.data.datasets.columns import (
    SHOWN,
    check_columns,
    check_complete,
    first_text,
    is_numeric,
    texts_of,
    type_column,
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

LEAST_NOISE = 1e-6
"""Least variance of the noise of a number that is predicted, where the number's own is 1."""

GREY = 127.5
"""Place of a column's mean on the scale of pixels, and its standard deviation there."""

_NUMBER_WITH_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


@dataclass(frozen=True)
class Column:
    """A column that a network takes.

    Attributes:
        categories: Its categories, in the order of their inputs; empty: it holds numbers.
        lowest: Least number of the training rows; None: not known, or it has categories.
        frequent: The category that a missing value counts as.
        missing: ``refuse``; ``mean``, as which, or as the most frequent category, missing values
            count; or ``indicator``, an input more besides, 1 where the value is missing.
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
        """Return a column of numbers; the deviation of constant ones counts as 1."""
        return ColumnSums.of_numbers(name, numbers).column(where)

    @classmethod
    def from_dict(cls, column: Mapping[str, Any]) -> Column:
        """Return the column that JSON has.

        Raises:
            ValueError: It is something else.
        """
        return pydantic.TypeAdapter(cls).validate_python(dict(column))

    @property
    def width(self) -> int:
        """The number of its inputs."""
        return (len(self.categories) or 1) + (self.missing == INDICATOR)

    def encoded(self, values: Series[Any], where: str) -> npt.NDArray[np.float64]:
        """Return (N, width) standardised numbers, or zeros and ones; all 0 of another category."""
        if self.categories:
            texts = texts_of(values)
            absent = np.array([text is None for text in texts])
            texts = np.where(absent, self.frequent, texts)
            own = np.asarray(texts[:, np.newaxis] == np.array(self.categories, object), np.float64)
        else:
            numbers = self._numbers(values, where)
            absent = np.isnan(numbers)
            own = (np.where(absent, self.mean, numbers)[:, np.newaxis] - self.mean) / self.deviation
        return np.column_stack([own, absent]) if self.missing == INDICATOR else own

    def warnings(self, values: Series[Any], where: str) -> list[str]:
        """Return for each of N values how it is unlike the training rows; or ""."""
        if self.categories:
            known: dict[str | None, str] = {None: f"{self.name} has no value"}
            known |= dict.fromkeys(self.categories, "")
            return [
                known.get(text, f"{self.name} '{printable(str(text))}' is unseen")
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
            for number in self._numbers(values, where)
        ]

    def _numbers(self, values: Series[Any], where: str) -> npt.NDArray[np.float64]:
        typed = type_column(values, where).values
        if not is_numeric(typed):
            row, text = first_text(typed)
            raise DataError(
                f"{where}: row {row + 1} (from 1, without the header) of column '{self.name}' "
                f"holds '{text}', and the run takes numbers"
            )
        return np.asarray(typed, np.float64)


@dataclass(frozen=True)
class ColumnSums:
    """Sums over the rows of a column, which add up over clients.

    Attributes:
        rows: The number of rows, with a value or without.
        known: The number of rows with a value.
        around: The number c that the sums are taken around, the same in all that are added.
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
            around: The number c; None: their mean, and their ends are told as well.
        """
        known = numbers[~np.isnan(numbers)]
        told = around is None and known.size > 0
        with np.errstate(over="ignore", invalid="ignore"):
            centre = float(known.mean()) if told else around or 0.0
            total, squares = float((known - centre).sum()), float(((known - centre) ** 2).sum())
        lowest, highest = (float(known.min()), float(known.max())) if told else (None, None)
        return cls(
            name, numbers.size, known.size, centre, total, squares, lowest=lowest, highest=highest
        )

    def add(self, other: ColumnSums) -> ColumnSums:
        """Return the sums over the rows of both, without their ends."""
        mine, theirs = (sums.counts is not None for sums in (self, other))
        if (self.name, self.around) != (other.name, other.around) or (
            mine != theirs and self.known and other.known
        ):
            raise DataError(
                f"column '{self.name}' holds {'texts' if mine else 'numbers'} here and column "
                f"'{other.name}' {'texts' if theirs else 'numbers'} there; allowed: one kind in "
                "all tables"
            )
        both = Counter(self.counts or {}) + Counter(other.counts or {})
        return ColumnSums(
            self.name,
            self.rows + other.rows,
            self.known + other.known,
            self.around,
            self.total + other.total,
            self.squares + other.squares,
            dict(both) if mine or theirs else None,
        )

    def column(self, where: str, missing: str = REFUSE) -> Column:
        """Return the column by its sums; the deviation of constant numbers counts as 1.

        Args:
            missing: The key ``missing``.
        """
        import pandas

        if not self.known:
            raise DataError(
                f"{where}: column '{self.name}' has no value in any row; leave it out "
                "(columns-left-out)"
            )
        kept = MEAN if missing == INDICATOR and self.known == self.rows else missing
        if self.counts is not None:
            ordered = tuple(sorted(self.counts))
            if all(map(_NUMBER_WITH_COMMA.fullmatch, ordered)):
                raise DataError(
                    f"{where}: column '{self.name}' holds '{ordered[0]}', a number with a decimal "
                    "comma; allowed: a point"
                )
            if len(ordered) > MOST_CATEGORIES or len(ordered) == self.rows > FEW_ROWS:
                strangest = first_text(pandas.Series(ordered, dtype=object))[1]
                raise DataError(
                    f"{where}: column '{self.name}' has {len(ordered)} categories in {self.rows} "
                    f"rows, such as '{strangest}'; at most {MOST_CATEGORIES} are taken, and not "
                    "one a row; leave it out (columns-left-out), or store numbers"
                )
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
        # Of one value, up to the rounding of sums that are taken far from it.
        one_value = self.lowest is not None and self.lowest == self.highest
        constant = one_value or bool(variance <= 16 * np.finfo(float).eps * apart**2)
        return Column(
            self.name,
            mean=self.around + apart,
            deviation=1.0 if constant else float(np.sqrt(variance)),
            lowest=self.lowest,
            highest=self.highest,
            missing=kept,
        )


def table_sums(
    rows: DataFrame, where: str, *, around: float | None = None
) -> tuple[ColumnSums, ...]:
    """Return the sums over typed rows, one for each column.

    Args:
        around: As for ``ColumnSums.of_numbers``; a number where sums of several tables are added.
    """
    found = []
    for name, values in rows.items():
        if values.dtype.kind in "mM":
            raise DataError(
                f"{where}: column '{name}' holds dates, which are no inputs; make numbers of them, "
                "or leave it out (columns-left-out)"
            )
        if is_numeric(values):
            found.append(ColumnSums.of_numbers(str(name), values.to_numpy(np.float64), around))
        else:
            counts = Counter(text for text in values if text is not None)
            sums = ColumnSums(str(name), len(values), counts.total(), around or 0.0, counts=counts)
            found.append(sums)
    return tuple(found)


def add(one: Sequence[ColumnSums], other: Sequence[ColumnSums]) -> tuple[ColumnSums, ...]:
    """Return the sums over the rows of two tables with the same columns."""
    names, others = ([sums.name for sums in each] for each in (one, other))
    if names != others:
        raise DataError(
            f"one table has the columns {', '.join(names)}, and another one {', '.join(others)}; "
            "allowed: the same ones in all tables"
        )
    return tuple(a.add(b) for a, b in zip(one, other, strict=True))


@dataclass(frozen=True)
class Encoding:
    """Encoding of a table's rows as what a network takes, by its columns in their order.

    Rows are "images" of a height and a channel of 1, on the scale of pixels: numbers with the mean
    127.5 and that standard deviation, which a network takes as 0 and 1.
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, rows: DataFrame, where: str, missing: str = REFUSE) -> Encoding:
        """Return the encoding by the means, deviations and categories of typed training rows."""
        if not len(rows.columns):
            raise DataError(f"{where} has no column besides those that are no inputs")
        return cls.finish(table_sums(rows, where), where, missing)

    @classmethod
    def finish(cls, sums: Sequence[ColumnSums], where: str, missing: str = REFUSE) -> Encoding:
        """Return the encoding by sums over all rows, of however many tables."""
        return cls(tuple(each.column(where, missing) for each in sums))

    def encoded(
        self, rows: DataFrame | npt.ArrayLike, where: str = "the table", *, tell: bool = False
    ) -> Images:
        """Return rows as a network takes them, float32 (N, 1, inputs, 1).

        Args:
            rows: A data frame with the columns, or an array (N, columns) in their order.
            tell: Whether categories that no column has are a warning.
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
        rows = rows.rename(columns=str).reset_index(drop=True)
        check_columns(names, rows, where)
        own = {
            column.name: pandas.Series(texts_of(rows[column.name]), dtype=object)
            if column.categories
            else type_column(rows[column.name], where).values
            for column in self.columns
        }
        filled = all(column.missing != REFUSE for column in self.columns)
        check_complete(pandas.DataFrame(own), where, fixed=True, filled=filled)
        return pandas.DataFrame(own)

    def unseen(self, rows: DataFrame) -> list[str]:
        """Return a line of each column with categories that it has not seen; all are 0."""
        lines = []
        for column in (column for column in self.columns if column.categories):
            counts = Counter(texts_of(rows[column.name]))
            new = [
                f"'{printable(kind)}' in {count} of {len(rows)} rows"
                for kind, count in counts.most_common()
                if kind is not None and kind not in column.categories
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
            ValueError: It is something else.
        """
        return cls(tuple(map(Column.from_dict, columns)))
