"""Columns of a table as inputs of a network, by sums over rows that add up over clients."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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

CONSTANT = 1e-10
"""Greatest variance of numbers that count as one value by masked sums, in squares of the deviation
of the server's table: about what their rounding leaves of one value."""

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
    def from_dict(cls, column: Mapping[str, Any]) -> Column:
        """Return the column that JSON has; a ValueError if it has none."""
        found = pydantic.TypeAdapter(cls).validate_python(dict(column))
        if not (np.isfinite(found.mean) and 0 < found.deviation < np.inf):
            raise ValueError(f"column '{found.name}' has mean {found.mean} ± {found.deviation}")
        if found.missing not in (REFUSE, MEAN, INDICATOR):
            raise ValueError(f"column '{found.name}' has missing '{found.missing}'")
        return found

    @property
    def width(self) -> int:
        """The number of its inputs."""
        return (len(self.categories) or 1) + (self.missing == INDICATOR)

    @property
    def sums(self) -> int:
        """The number of its sums, see ``add_up``."""
        return len(self.categories) or 3

    def encoded(self, values: Series[Any], where: str) -> npt.NDArray[np.float64]:
        """Return (N, width) standardised numbers, or zeros and ones; all 0 of another category."""
        if self.categories:
            texts = texts_of(values)
            absent = np.array([text is None for text in texts])
            texts = np.where(absent, self.frequent, texts)
            own = np.asarray(texts[:, np.newaxis] == np.array(self.categories, object), np.float64)
        else:
            numbers = self.numbers(values, where)
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
            for number in self.numbers(values, where)
        ]

    def numbers(self, values: Series[Any], where: str) -> npt.NDArray[np.float64]:
        """Return (N,) numbers, NaN where a value is missing."""
        typed = type_column(values, where).values
        if not is_numeric(typed):
            row, text = first_text(typed)
            raise DataError(
                f"{where}: row {row + 1} (from 1, without the header) of column '{self.name}' "
                f"holds '{text}', and the run takes numbers"
            )
        return np.asarray(typed, np.float64)


def _reference(name: str, values: Series[Any], where: str) -> Column:
    """Return the column by which sums over typed rows are taken: its categories, or its mean."""
    if values.dtype.kind in "mM":
        raise DataError(
            f"{where}: column '{name}' holds dates, which are no inputs; make numbers of them, or "
            "leave it out (columns-left-out)"
        )
    if not is_numeric(values):
        return Column(name, tuple(sorted({text for text in values if text is not None})))
    known = values.to_numpy(np.float64)
    known = known[~np.isnan(known)]
    if not known.size:
        return Column(name)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(known.mean())
    return Column(name, mean=mean, lowest=float(known.min()), highest=float(known.max()))


def add_up(
    rows: DataFrame, columns: Sequence[Column], where: str = "the table"
) -> npt.NDArray[np.float64]:
    """Return sums (S,) over rows that add up over tables: their number, and those of each column.

    Of categories these are the numbers of rows of each; of numbers x with z = (x − mean) /
    deviation the number of rows that have one, Σ z and Σ z².
    """
    parts: list[Sequence[float]] = [[len(rows)]]
    for column in columns:
        if column.categories:
            counts = Counter(texts_of(rows[column.name]))
            parts.append([counts[kind] for kind in column.categories])
            continue
        numbers = column.numbers(rows[column.name], where)
        with np.errstate(over="ignore", invalid="ignore"):
            z = (numbers[~np.isnan(numbers)] - column.mean) / column.deviation
            parts.append([z.size, z.sum(), (z**2).sum()])
    return np.concatenate(parts)


def sums_size(columns: Sequence[Column]) -> int:
    """Return the number S of the sums that ``add_up`` gives."""
    return 1 + sum(column.sums for column in columns)


def _by_column(
    sums: npt.NDArray[np.float64], columns: Sequence[Column]
) -> Iterator[tuple[Column, npt.NDArray[np.float64]]]:
    starts = np.cumsum([1, *(column.sums for column in columns)])[:-1]
    yield from zip(columns, np.split(sums, starts)[1:], strict=True)


def impossible_column(
    sums: npt.NDArray[np.float64], columns: Sequence[Column], rows: int, rounding: float = 1e-6
) -> str:
    """Return the name of a column whose sums no table of so many rows has; or nothing.

    ``rounding`` is a row's share in that of masked sums.
    """
    slack = rounding * rows
    wrong = not abs(sums[0] - rows) <= slack or not np.isfinite(sums).all()
    for column, own in _by_column(sums, columns):
        counts = own if column.categories else own[:1]
        wrong |= counts.min() < -slack or counts.sum() > rows + slack
        if not column.categories:  # by Cauchy and Schwarz
            wrong |= own[1] ** 2 > (1 + rounding) * own[0] * own[2] + slack
        if wrong:
            return column.name
    return ""


def finish(
    sums: npt.NDArray[np.float64],
    columns: Sequence[Column],
    where: str,
    missing: str = REFUSE,
    constant: float = 0.0,
) -> tuple[Column, ...]:
    """Return columns by what ``add_up`` gives of all tables; ``missing`` is the key.

    The deviation of numbers of one value counts as 1: of those with at most a variance
    ``constant``, by the deviations of ``columns``, or what rounding leaves of one value. The ends
    of numbers are those of ``columns``.
    """
    return tuple(
        _finish_column(own, column, round(sums[0]), where, missing, constant)
        for column, own in _by_column(sums, columns)
    )


def _finish_column(
    sums: npt.NDArray[np.float64],
    column: Column,
    rows: int,
    where: str,
    missing: str,
    constant: float,
) -> Column:
    import pandas

    counts = np.rint(sums).astype(int) if column.categories else np.zeros(0, int)
    known = int(counts.sum()) if column.categories else round(sums[0])
    if not known:
        raise DataError(
            f"{where}: column '{column.name}' has no value in any row; leave it out "
            "(columns-left-out)"
        )
    kept = MEAN if missing == INDICATOR and known == rows else missing
    if kinds := column.categories:
        if all(map(_NUMBER_WITH_COMMA.fullmatch, kinds)):
            raise DataError(
                f"{where}: column '{column.name}' holds '{kinds[0]}', a number with a decimal "
                "comma; allowed: a point"
            )
        if len(kinds) > MOST_CATEGORIES or len(kinds) == rows > FEW_ROWS:
            strangest = first_text(pandas.Series(kinds, dtype=object))[1]
            raise DataError(
                f"{where}: column '{column.name}' has {len(kinds)} categories in {rows} rows, such "
                f"as '{strangest}'; at most {MOST_CATEGORIES} are taken, and not one a row; leave "
                "it out (columns-left-out), or store numbers"
            )
        return replace(column, frequent=kinds[int(counts.argmax())], missing=kept)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = float(sums[1]) / known
        variance = max(float(sums[2]) / known - apart**2, 0.0)
    if not np.isfinite(variance):
        raise DataError(
            f"{where}: column '{column.name}' holds numbers too large to be standardised; give it "
            "another unit"
        )
    # Of one value, up to the rounding of sums that are taken far from it, or masked.
    one_value = len({column.lowest, column.highest} - {None}) == 1 or variance <= max(
        16 * np.finfo(float).eps * apart**2, constant
    )
    return replace(
        column,
        mean=column.mean + apart * column.deviation,
        deviation=1.0 if one_value else float(np.sqrt(variance)) * column.deviation,
        missing=kept,
    )


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
        reference = [_reference(str(name), values, where) for name, values in rows.items()]
        return cls(finish(add_up(rows, reference, where), reference, where, missing))

    def encoded(
        self, rows: DataFrame | npt.ArrayLike, where: str = "the table", *, tell: bool = False
    ) -> Images:
        """Return rows, (N, columns) or a frame, as a network takes them: (N, 1, inputs, 1).

        With ``tell``, categories that no column has are a warning.
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
        """Return for each of N rows how its values are unlike the training rows, by column.

        That is a number outside their range, or where that is not known beyond 6 deviations of the
        mean, an unseen category, or no value.
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
        """Return the encoding that ``to_list`` has written; a ValueError if it has none."""
        return cls(tuple(map(Column.from_dict, columns)))
