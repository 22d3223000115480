"""Columns of tables: typed, checked, and encoded as inputs of a network.

What an encoding needs to know are sums over rows, which add up over clients.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import pydantic

from bfl.data.images import Images
from bfl.data.partitions.base import Columns
from bfl.errors import DataError, nearest, unknown_name
from bfl.texts import counted, few, printable

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Floats = npt.NDArray[np.float64]

REFUSE, MEAN, INDICATOR = "refuse", "mean", "indicator"
"""Values of the key ``missing``."""

SHOWN = 5  # categories in a message
MOST_CATEGORIES = 100  # of a column; more are rather names than kinds
FEW_NUMBERS = 5  # which may be kinds, such as stages 1 to 4 and "x"
MANY_NUMBERS = 20  # which are no kinds, where nine of ten values are numbers
FEW_ROWS = 10  # in which each may have a category of its own
FAR = 6.0  # deviations from the mean, beyond which a number is unlike the training rows'
LEAST_NOISE = 1e-6  # variance of a predicted number's noise, where the number's own is 1
GREY = 127.5  # a column's mean on the scale of pixels, and its standard deviation there
ROUNDING = 1e-6  # of a client's sums, for each of its rows

CONSTANT = 1e-10
"""Greatest variance of numbers that count as one value by masked sums, in squares of the deviation
of the server's table: about what their rounding leaves of one value."""

NO_VALUE = frozenset(
    ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>", "NAN")
)
"""Words that are no value among numbers; among texts they are texts, and only "" is no value."""

CODE = r"[+-]?0[0-9]+"  # a whole number with zeros before it is rather a name
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u2060\ufeff]")


def normalize(text: str) -> str:
    """Return a text as its name is known: composed (NFC), without spaces or what has no width."""
    return unicodedata.normalize("NFC", _UNPRINTABLE.sub("", text)).strip()


def normalize_texts(values: Series[Any]) -> Series[Any]:
    """Return values of any type as normalized texts, None for no value or ""."""
    texts = values.astype(object).where(values.notna(), None).map(str, na_action="ignore")
    names = {text: normalize(text) or None for text in texts.dropna().unique()}
    normalized = texts.map(names, na_action="ignore").astype(object)
    return normalized.where(normalized.notna(), None)


def type_column(values: Series[Any], where: str) -> Series[Any]:
    """Return a column of any type as numbers if all its values are, else as texts.

    Decimals and texts such as "1.5" are numbers. Codes such as "007" are texts. A DataError says
    that it holds anything else, such as dates.
    """
    import pandas
    from pandas.api import types

    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf":
        return values
    objects = values.astype(object).where(values.notna(), None)
    kind = types.infer_dtype(objects, skipna=True)
    if kind in ("decimal", "integer", "floating", "mixed-integer-float", "boolean", "empty"):
        return objects.astype(float)
    for value in objects:
        if value is not None and not isinstance(value, str | int | float):
            raise DataError(
                f"{where}: column '{values.name}' holds values of the type {type(value).__name__}, "
                f"such as '{printable(str(value))[:60]}'; allowed: numbers or texts, or "
                "columns-left-out"
            )
    texts = normalize_texts(objects)
    known = texts.where(~texts.isin(NO_VALUE))
    distinct = known.dropna().drop_duplicates()
    if distinct.empty:
        return texts
    if distinct.str.lower().isin(("true", "false")).all():
        truths = known.map(lambda text: text.lower() == "true", na_action="ignore")
        return truths.astype(float if truths.isna().any() else bool)
    return texts if find_strays(distinct).any() else pandas.to_numeric(known, errors="coerce")


def find_strays(texts: Series[Any]) -> Series[bool]:
    """Return which values of a column of texts are neither numbers nor no value."""
    import pandas

    known = texts.where(~texts.isin(NO_VALUE))
    is_code = known.str.fullmatch(CODE).eq(True)
    return known.notna() & (is_code | pandas.to_numeric(known, errors="coerce").isna())


def describe_stray(values: Series[Any]) -> tuple[str, bool]:
    """Return which row of a typed column is a text among many numbers, in words; else "".

    And whether it is a mistake, as such a column has no categories. Rows are those of its index,
    from 0.
    """
    if is_numeric(values):
        return "", False
    known = values[~values.isin(NO_VALUE)].dropna()
    strays = find_strays(known)
    numbers = known[~strays]
    if 2 * len(numbers) <= len(known) or numbers.nunique() <= FEW_NUMBERS:
        return "", False
    row, kinds = strays.idxmax(), numbers.nunique()
    wrong = kinds >= MANY_NUMBERS and len(numbers) >= 0.9 * len(known)
    return (
        f"column '{values.name}': {len(numbers)} of {len(known)} values are numbers; row {row + 1} "
        f"(from 1, without the header) holds '{printable(known[row])}'"
    ), wrong or are_names(values.nunique(), len(values))


def is_numeric(values: Series[Any]) -> bool:
    """Return whether a typed column holds numbers."""
    return values.dtype.kind in "biuf"


def as_numbers(values: Series[Any], where: str, allowed: str = "numbers") -> Floats:
    """Return (N,) numbers, NaN where a value is missing; ``allowed`` ends the refusal of texts."""
    import pandas

    typed = type_column(values, where)
    if not is_numeric(typed) and (strays := find_strays(typed)).any():
        row = int(strays.to_numpy().argmax())
        raise DataError(
            f"{where}: row {row + 1} (from 1, without the header) of column '{values.name}' holds "
            f"'{printable(str(typed.iloc[row]))}'; allowed: {allowed}"
        )
    return np.asarray(pandas.to_numeric(typed, errors="coerce"), np.float64)


def columns_of(rows: DataFrame) -> Columns:
    """Return all columns as arrays, those of anything but numbers as texts; "" is no value."""
    return {
        name: values.to_numpy()
        if values.to_numpy().dtype.kind in "biuf"
        else normalize_texts(values).fillna("").to_numpy(str)
        for name, values in rows.items()
    }


def check_named_columns(named: Mapping[str, Sequence[str]], rows: DataFrame, where: str) -> None:
    """Refuse, a line each, names by the key that has them which are those of no column."""
    known = [str(name) for name in rows.columns]
    absent = [(key, name) for key, names in named.items() for name in names if name not in known]
    lines = [f"{where} ({key}): {unknown_name('column', name, known)}" for key, name in absent]
    if lines:
        raise DataError("\n".join(lines))


def check_columns(
    names: Sequence[str], rows: DataFrame, where: str, *, filled: bool = False
) -> None:
    """Refuse rows that lack a column of some names; ``filled`` says that it may have gaps."""
    known = [str(name) for name in rows.columns]
    if absent := [name for name in names if name not in known]:
        others = [name for name in known if name not in names]
        guesses = {name: nearest(name, others) for name in absent}
        shown = [f"'{n}'" + (f" (is it '{near}'?)" if near else "") for n, near in guesses.items()]
        what = f"{counted(len(absent), 'column')} that the run takes: {few(shown)}"
        empty = "; allowed: an empty column of that name, which missing fills" if filled else ""
        raise DataError(f"{where} lacks {what}; it has {few(known, 30)}{empty}")


def check_complete(
    rows: DataFrame, where: str, target: str = "", *, fixed: bool = False, filled: bool = False
) -> None:
    """Refuse typed rows in which a value is missing, or is no finite number.

    Columns can be left out unless they are ``fixed``, and if they are ``filled`` have gaps; the
    target can neither.
    """
    wrong = rows.isin([np.inf, -np.inf])
    wrong |= rows.isna() & (rows.columns == target) if filled else rows.isna()
    counts = wrong.sum()[wrong.any()]
    if counts.empty:
        return
    column = counts.index[0]
    row = int(wrong[column].to_numpy().argmax())
    allowed = "" if fixed or target in counts else ", or columns-left-out"
    if allowed and not filled and rows.isna().to_numpy().any():
        allowed += ', or for missing values missing="mean" or "indicator"'
    shown = ", ".join(f"'{printable(str(name))}' {count}" for name, count in counts.items())
    value = "no value" if rows[column].isna().iloc[row] else rows[column].iloc[row]
    raise DataError(
        f"{where}: row {row + 1} (from 1, without the header) holds {value} in column '{column}'; "
        f"rows with such cells: {shown}; allowed: finite values{allowed}"
    )


def count_missing_cells(rows: DataFrame, names: Iterable[str]) -> dict[str, int]:
    """Return the number of cells without a value, by the columns that have some."""
    counts = {name: int((rows[name].isna() | rows[name].eq("")).sum()) for name in names}
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True)
class Column:
    """A column that a network takes, by the training rows.

    Attributes:
        categories: In the order of their inputs; empty: the column holds numbers.
        frequent: The category that a missing value counts as.
        missing: ``refuse``; ``mean``, as which, or as the most frequent category, missing values
            count; or ``indicator``, an input more besides, 1 where the value is missing.
    """

    name: str
    categories: tuple[str, ...] = ()
    mean: pydantic.FiniteFloat = 0.0
    deviation: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] = 1.0
    frequent: str = ""
    missing: Annotated[str, pydantic.Field(pattern=f"^({REFUSE}|{MEAN}|{INDICATOR})$")] = REFUSE

    @classmethod
    def from_dict(cls, column: Mapping[str, Any]) -> Column:
        """Return the column that JSON has; a ValueError if it has none."""
        return pydantic.TypeAdapter(cls).validate_python(dict(column))

    @property
    def sums(self) -> int:
        """The number of its sums, see ``add_up``."""
        return len(self.categories) or 3

    def encode(self, values: Series[Any], where: str) -> Floats:
        """Return (N, inputs) standardised numbers, or zeros and ones; all 0 of another category."""
        if self.categories:
            kinds = np.asarray(normalize_texts(values), object)
            absent = np.array([kind is None for kind in kinds])
            kinds = np.where(absent, self.frequent, kinds)
            own = np.asarray(kinds[:, np.newaxis] == np.array(self.categories, object), np.float64)
        else:
            numbers = as_numbers(values, where)
            absent = np.isnan(numbers)
            own = (np.where(absent, self.mean, numbers)[:, np.newaxis] - self.mean) / self.deviation
        return np.column_stack([own, absent]) if self.missing == INDICATOR else own

    def warnings(self, values: Series[Any]) -> list[str]:
        """Return for each of N values how it is unlike the training rows; or "", as if missing."""
        if self.categories:
            kinds = normalize_texts(values)
            known = kinds.isna() | kinds.isin(self.categories)
            texts = [f"'{printable(str(kind))}' is unseen" for kind in kinds]
        else:
            numbers = as_numbers(values, self.name)
            known = ~(abs(numbers - self.mean) > FAR * self.deviation)
            texts = [f"{number:g} is beyond {FAR:g} deviations of the mean" for number in numbers]
        return [
            "" if fits else f"{self.name} {text}" for fits, text in zip(known, texts, strict=True)
        ]


def add_up(rows: DataFrame, columns: Sequence[Column], where: str = "the table") -> Floats:
    """Return sums (S,) over rows that add up over tables: their number, and those of each column.

    Of categories these are the numbers of rows of each; of numbers x with z = (x − mean) /
    deviation the number of rows that have one, Σ z and Σ z².
    """
    parts: list[Sequence[float]] = [[len(rows)]]
    for column in columns:
        if column.categories:
            counts = Counter(normalize_texts(rows[column.name]))
            parts.append([counts[kind] for kind in column.categories])
            continue
        numbers = as_numbers(rows[column.name], where)
        with np.errstate(over="ignore", invalid="ignore"):
            z = (numbers[~np.isnan(numbers)] - column.mean) / column.deviation
            parts.append([z.size, z.sum(), (z**2).sum()])
    return np.concatenate(parts)


def sums_size(columns: Sequence[Column]) -> int:
    """Return the number S of the sums that ``add_up`` gives."""
    return 1 + sum(column.sums for column in columns)


def _by_column(sums: Floats, columns: Sequence[Column]) -> Iterator[tuple[Column, Floats]]:
    starts = np.cumsum([1, *(column.sums for column in columns)])[:-1]
    yield from zip(columns, np.split(sums, starts)[1:], strict=True)


def impossible_column(sums: Floats, columns: Sequence[Column], rows: int) -> str:
    """Return the name of a column whose sums no table has, up to ``ROUNDING`` a row; or ""."""
    slack = ROUNDING * rows
    wrong = not abs(sums[0] - rows) <= slack or not np.isfinite(sums).all()
    for column, own in _by_column(sums, columns):
        counts = own if column.categories else own[:1]
        wrong |= counts.min() < -slack or counts.sum() > rows + slack
        if not column.categories:  # by Cauchy and Schwarz
            wrong |= own[1] ** 2 > (1 + ROUNDING) * own[0] * own[2] + slack
        if wrong:
            return column.name
    return ""


def are_names(kinds: int, rows: int) -> bool:
    """Return whether a column has too many kinds of texts for categories."""
    return kinds > MOST_CATEGORIES or kinds == rows > FEW_ROWS


def finish(
    sums: Floats,
    columns: Sequence[Column],
    where: str,
    missing: str = REFUSE,
    constant: float = 0.0,
) -> tuple[Column, ...]:
    """Return columns by what ``add_up`` gives of all tables; ``missing`` is the key.

    The deviation of numbers of one value counts as 1: of those with at most a variance
    ``constant``, by the deviations of ``columns``, or what rounding leaves of one value.
    """
    rows, found = round(sums[0]), []
    for column, own in _by_column(sums, columns):
        counts = np.rint(own if column.categories else own[:1]).astype(int)
        known = int(counts.sum())
        named = f"{where}: column '{column.name}'"
        if not known:
            raise DataError(f"{named} has no value in any row; leave it out (columns-left-out)")
        filling = MEAN if missing == INDICATOR and known == rows else missing
        if column.categories:
            kinds = column.categories
            if all(re.fullmatch(r"[+-]?[0-9]+,[0-9]+", kind) for kind in kinds):
                raise DataError(f"{named} holds '{kinds[0]}'; allowed: a point in numbers")
            if are_names(len(kinds), rows):
                raise DataError(
                    f"{named} has {len(kinds)} categories in {rows} rows, such as "
                    f"'{printable(kinds[-1])}'; allowed: numbers, categories of at most "
                    f"{MOST_CATEGORIES}, and not one a row, or columns-left-out"
                )
            frequent = kinds[int(counts.argmax())]
            found.append(replace(column, frequent=frequent, missing=filling))
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            apart = float(own[1]) / known
            variance = max(float(own[2]) / known - apart**2, 0.0)
        if not np.isfinite(variance):
            raise DataError(f"{named} holds numbers too large to be standardised")
        # Of one value, up to the rounding of sums that are taken far from it, or masked.
        rounding = max(16 * np.finfo(float).eps * apart**2, constant)
        deviation = 1.0 if variance <= rounding else float(np.sqrt(variance)) * column.deviation
        mean = column.mean + apart * column.deviation
        found.append(replace(column, mean=mean, deviation=deviation, missing=filling))
    return tuple(found)


@dataclass(frozen=True)
class Encoding:
    """Encoding of a table's rows as "images" of a height and a channel of 1, column by column.

    Numbers have the mean 127.5 and that standard deviation, which a network takes as 0 and 1.
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, rows: DataFrame, where: str, missing: str = REFUSE) -> Encoding:
        """Return the encoding by the means, deviations and categories of typed training rows."""
        if not len(rows.columns):
            raise DataError(f"{where} has no column besides those that are no inputs")
        reference = []
        for name, values in rows.items():
            kinds, mean = (), 0.0
            if not is_numeric(values):
                kinds = tuple(sorted(set(values.dropna())))
            elif values.notna().any():
                with np.errstate(over="ignore", invalid="ignore"):
                    mean = float(values.dropna().to_numpy(np.float64).mean())
            reference.append(Column(str(name), kinds, mean))
        return cls(finish(add_up(rows, reference, where), reference, where, missing))

    def encode(self, rows: DataFrame | npt.ArrayLike, where: str = "the table") -> Images:
        """Return rows, (N, columns) or a frame, as a network takes them: (N, 1, inputs, 1)."""
        own = self._own(rows, where)
        parts = [column.encode(own[column.name], where) for column in self.columns]
        values = GREY * (np.concatenate(parts, axis=1) + 1)
        return values.astype(np.float32)[:, np.newaxis, :, np.newaxis]

    def row_warnings(self, rows: DataFrame | npt.ArrayLike) -> list[tuple[str, ...]]:
        """Return for each of N rows how its values are unlike the training rows, by column.

        That is a number beyond 6 deviations of their mean, an unseen category, or a row of which
        more than half is missing: what stands in for its values says nothing of it.
        """
        own, inputs = self._own(rows, "the table"), len(self.columns)
        found = [column.warnings(own[column.name]) for column in self.columns]
        gaps = (own.isna() | own.eq("")).sum(axis=1)
        texts = [f"{gap} of {inputs} inputs have no value" for gap in gaps]
        found.append([t if 2 * g > inputs else "" for t, g in zip(texts, gaps, strict=True)])
        return [tuple(filter(None, of_row)) for of_row in zip(*found, strict=True)]

    def unseen(self, rows: DataFrame) -> list[str]:
        """Return a line of each column with categories that it has not seen; all are 0."""
        lines = []
        for column in (column for column in self.columns if column.categories):
            counts = Counter(normalize_texts(rows[column.name]))
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

    def _own(self, rows: DataFrame | npt.ArrayLike, where: str) -> DataFrame:
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
        filled = all(column.missing != REFUSE for column in self.columns)
        check_columns(names, rows, where, filled=filled)
        typed = partial(type_column, where=where)
        own = pandas.DataFrame(
            {
                column.name: (normalize_texts if column.categories else typed)(rows[column.name])
                for column in self.columns
            }
        )
        check_complete(own, where, fixed=True, filled=filled)
        return own
